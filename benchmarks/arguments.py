"""What commands of `benchmarks` that read one folder are called with."""

from __future__ import annotations

import argparse
from pathlib import Path


def folder(description: str | None, what: str = "the results of a study") -> Path:
    """The folder named on the command line; argparse ends the command where there is none."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help=what)
    given: Path = parser.parse_args().folder
    if not given.is_dir():
        parser.error(f"no such folder: {given}")
    return given
