# The study, validated before any job, and what holds for every job.

import importlib.util
import os
import re
import sys
from collections import Counter
from pathlib import Path

# The repository's root, wherever the main Snakefile is.
PROJECT = Path(workflow.current_basedir).resolve().parents[1]

# Whether the rules are used by another workflow, which has targets and handlers of its own.
AS_MODULE = Path(workflow.main_snakefile).resolve() not in (
    PROJECT / "Snakefile",
    PROJECT / "workflow/Snakefile",
)

# Jobs also use the package in the repository, whether it is installed or not.
sys.path.insert(0, str(PROJECT))
os.environ.update(
    PYTHONPATH=os.pathsep.join(sys.path[:1] + [os.getenv("PYTHONPATH", "")])
)

for package in ("pandas", "psutil", "pyarrow", "pydantic", "torch", "trl", "yaml"):
    if not importlib.util.find_spec(package):
        sys.exit(
            f"The package {package} is not installed in {sys.prefix}: run `make install`, then "
            "use .venv/bin/sage-rlvr or .venv/bin/snakemake"
        )

from sage.evaluation.metrics import TABLES as METRICS
from sage.exhibits import load_study
from sage.fetched_bases import kept_base
from sage.problems.fetching import data_sums
from sage.tasks import set_sums, task_files
from sage.results import Results, Run
from sage.runtime.common_work import take_over
from sage.runtime.dependencies import WITHOUT_EFFECT, module_files
from sage.runtime.devices import jobs_per_gpu, places, visible_devices
from sage.runtime.faults import Damaged, Fault, require_writable
from sage.runtime.files import from_repository
from sage.runtime.manifest import COMMIT, git_commit
from sage.runtime.records import FOLDER, LAST, compare, jobs_folder, record_file
from sage.runtime.survivors import Locked, hold, note_owner
from sage.runtime.tracking import for_jobs as tracking_for_jobs
from sage.study import BASE, StudyError, choice_files, load_settings
from sage.study.conflicts import FLOAT32_ADAPTERS, float32_adapters
from sage.study.without_effect import for_jobs as settings_for_jobs
from sage.study.written import lineage, name_of_study
from sage.tools.targets import TELLING

# Used with `--software-deployment-method conda` only.
ENVIRONMENT = "../../environment.yml"

CONFIG_FOLDER = PROJECT / "config"


def refuse(message):
    """End before any job with a message for people: no traceback, no place in a rule's file."""
    sys.exit(str(message))


PAPER = from_repository("reports/paper")

try:
    SETTINGS = load_settings(config)
    STUDY = load_study(SETTINGS.study, CONFIG_FOLDER, SETTINGS.set)
except StudyError as error:
    refuse(error)

# Jobs import classes beside the study's file, after all else.
if Path(SETTINGS.study).is_file():
    beside = str(Path(SETTINGS.study).resolve().parent)
    os.environ.update(PYTHONPATH=os.pathsep.join([os.getenv("PYTHONPATH", ""), beside]))

RESULTS = Results(Path(SETTINGS.results) / STUDY.name)
if not Path(SETTINGS.results).is_dir() and Path(SETTINGS.results).exists():
    refuse(
        f"results: {SETTINGS.results!r} is a file; name the folder where results go, in "
        "config/config.yaml or with --config results=FOLDER"
    )
RUN = Run("{model}", "{algorithm}", "{seed}")

# Where jobs record what they have made.
os.environ[FOLDER] = str(RESULTS.folder)

if SETTINGS.mirror:
    # In the environment, not in params: another source of the same file must not rerun jobs.
    os.environ.update(SAGE_MIRROR=str(Path(SETTINGS.mirror).expanduser().resolve()))

try:
    # Likewise: who watches the training changes no result.
    os.environ.update(
        tracking_for_jobs(SETTINGS.tracking, STUDY.name, RESULTS.folder / "tracking")
    )
except ValueError as error:
    refuse(error)

# Likewise: when jobs save and warn.
os.environ.update(settings_for_jobs(STUDY))


def one_of(names):
    """A wildcard's constraint: one of `names`; with no names it matches nothing."""
    return "|".join(map(re.escape, names)) or "(?!)"


wildcard_constraints:
    model=one_of(STUDY.study.models),
    algorithm=one_of([BASE, *STUDY.algorithms]),
    seed=r"\d+",
    benchmark=one_of(STUDY.study.problems),
    exhibit=one_of(STUDY.study.exhibits),


# On a cluster these run where Snakemake runs, not in the queue. `report` is not among them, because
# it reads every sample.
localrules:
    # They may need the network, which compute nodes often lack.
    problems,
    fetch,
    examples,
    # They take seconds.
    decontaminate,
    adopt,
    report_partial,
    # They are asked for by name, and print or pack what is there.
    registered,
    resolved,
    plan,
    check,
    compare,
    audit,
    verify,
    archive,
