"""Run every benchmark, or the named ones: `python -m benchmarks [grading sampling ...]`.

A benchmark is a module here with `comparisons() -> Iterable[Comparison]`. Prints a table and
writes `benchmarks/results.json`. The exit status is 0 if every limit was kept.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path

from benchmarks.paired import Comparison
from sage.runtime.files import write_text_atomic
from sage.runtime.manifest import hardware, versions

FOLDER = Path(__file__).parent
NOT_BENCHMARKS = {
    "__main__",
    "agreement",
    "chaos",
    "findings",
    "gpu",
    "paired",
    "paper_files",
    "random_policy",
    "reference_run",
    "worlds",
}


def main(names: list[str]) -> int:
    """Exit status: 0 if every limit was kept."""
    known = [m.name for m in pkgutil.iter_modules([str(FOLDER)]) if m.name not in NOT_BENCHMARKS]
    if unknown := set(names) - set(known):
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        return 2
    found: list[Comparison] = []
    for name in names or known:
        for comparison in importlib.import_module(f"benchmarks.{name}").comparisons():
            print(_line(comparison), flush=True)
            found.append(comparison)
    content = {
        "hardware": hardware(),
        "versions": versions(),
        "comparisons": [comparison.record() for comparison in found],
    }
    if not names:
        write_text_atomic(FOLDER / "results.json", json.dumps(content, indent=2) + "\n")
    return 0 if all(comparison.kept for comparison in found) else 1


def _line(comparison: Comparison) -> str:
    verdict = "kept" if comparison.kept else "NOT KEPT"
    return (
        f"{comparison.name}: {comparison.ratio:.3g} ({comparison.limit}: {verdict}; "
        f"{comparison.ours:.3g} {comparison.unit} against {comparison.other:.3g} "
        f"{comparison.unit}, median of {comparison.rounds})"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
