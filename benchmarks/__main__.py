"""Run every benchmark, or the named ones: `python -m benchmarks [grading sampling ...]`.

A benchmark is a module here with `comparisons() -> Iterable[Comparison]`. Prints what it measures,
each ratio and a line on what it means, and keeps them in `benchmarks/results.json`, which has the
last whole run of each benchmark, with its machine. The exit status is 0 if every limit was kept.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.paired import Comparison
from sage.runtime.files import write_text_atomic
from sage.runtime.manifest import git_commit, hardware, versions

FOLDER = Path(__file__).parent


def benchmarks() -> list[str]:
    """The names of the modules here that compare; the others are run by their own names."""
    files = sorted(FOLDER.glob("*.py"))
    return [file.stem for file in files if "\ndef comparisons(" in file.read_text("utf-8")]


def main(names: list[str]) -> int:
    """Exit status: 0 if every limit was kept."""
    known = benchmarks()
    if unknown := set(names) - set(known):
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        return 2
    kept = True
    for name in names or known:
        found, module = [], importlib.import_module(f"benchmarks.{name}")
        print(f"{name}: {(module.__doc__ or '').partition('.')[0]}.", flush=True)
        for comparison in module.comparisons():
            print(_line(comparison), flush=True)
            found.append(comparison)
        keep(name, found, FOLDER / "results.json")
        kept = kept and all(comparison.kept for comparison in found)
    return 0 if kept else 1


def keep(name: str, found: Sequence[Comparison], file: Path) -> None:
    """Write a benchmark's comparisons in place of its last ones; `file` may not exist yet."""
    content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    content[name] = {
        "hardware": hardware(),
        "versions": versions(),
        "commit": git_commit(),
        "comparisons": [comparison.record() for comparison in found],
    }
    write_text_atomic(file, json.dumps(dict(sorted(content.items())), indent=2) + "\n")


def _line(comparison: Comparison) -> str:
    verdict = "kept" if comparison.kept else "NOT KEPT"
    interval = ""
    if comparison.low is not None and comparison.high is not None:
        interval = f", 95 % interval {comparison.low:.3g} to {comparison.high:.3g}"
    return (
        f"{comparison.name}: {comparison.ratio:.3g}{interval} ({comparison.limit}: {verdict}; "
        f"{comparison.ours:.3g} {comparison.unit} against {comparison.other:.3g} "
        f"{comparison.unit}, median of {comparison.rounds})\n  {comparison.meaning}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
