"""Pretrain the bases of the default study, and keep them in `config/bases`: `make bases`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from sage.exhibits import load_study
from sage.fetched_bases import copy_checkpoint, kept_base
from sage.results import Results
from sage.study import ScratchBase

CONFIG = Path(__file__).resolve().parents[1] / "config"


def keep(results: Results, kept: Path) -> list[Path]:
    """Replace the folders of `kept` by the bases of `mini` in `results`; returns them."""
    shutil.rmtree(kept, ignore_errors=True)
    folders = []
    for name, model in load_study("mini", CONFIG).study.models.items():
        if isinstance(model.base, ScratchBase):
            folders.append(kept_base(model.base, kept))
            folders[-1].mkdir(parents=True)
            copy_checkpoint(results.pretrained(name), folders[-1])
            shutil.copy(results.pretrained(name) / "manifest.json", folders[-1])
    return folders


def main() -> None:
    """Run the workflow up to the bases, in a folder that goes afterwards."""
    with TemporaryDirectory() as folder:
        results = Results(Path(folder) / "mini")
        names = [str(results.pretrained(name)) for name in load_study("mini", CONFIG).study.models]
        settings = ("study=mini", "pretrain=again", f"results={folder}")
        snakemake = [str(Path(sys.executable).parent / "snakemake"), "--cores", "all"]
        subprocess.run([*snakemake, "--config", *settings, "--", *names], check=True)
        print(*keep(results, CONFIG / "bases"), sep="\n")


if __name__ == "__main__":
    main()
