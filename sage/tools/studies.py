"""Lists the studies of config/studies: title, time and jobs.

Jobs are those that train and sample. The time is that of a measured run of the whole study, where
there is one, else what `sage-rlvr plan` says of these jobs, one after another.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sage.exhibits import load_study
from sage.rendering.numbers import duration
from sage.results import Results
from sage.runtime.files import INSTALLED, NO_KEPT, from_repository
from sage.study import StudyError
from sage.study.written import lineage
from sage.tools import parser_of
from sage.tools.plan import TIMES, plan


def rows(config_folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """Name, time, jobs and title of each study of `config_folder`/studies."""
    for file in sorted((config_folder / "studies").glob("*.yaml")):
        try:
            study = load_study(file.stem, config_folder)
            above = lineage(file.stem, config_folder)
            below = [load_study(str(parent), config_folder) for parent in above]
        except StudyError as error:
            yield file.stem, "", "", str(error).splitlines()[0]
            continue
        stages = plan(study, Results(Path("results") / study.name), below)
        hours = [each.expected_hours for each in stages if each.expected_hours is not None]
        time = f"{duration(3600 * sum(hours))} of jobs" if hours else "unknown"
        if (measured := TIMES / f"{file.stem}_time.json").is_file():
            facts = json.loads(measured.read_text(encoding="utf-8"))
            time = duration(facts["seconds"]) if "seconds" in facts else time
        yield file.stem, time, str(sum(each.jobs for each in stages)), study.study.title


def main(arguments: Sequence[str]) -> int:
    """Print the list."""
    parser_of("studies", __doc__).parse_args(arguments)
    table = [("study", "time", "jobs", "title"), *rows(from_repository("config"))]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)).rstrip())
    if INSTALLED.is_dir():
        print(f"{NO_KEPT}.", file=sys.stderr)
    return 0
