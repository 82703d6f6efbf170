"""Where the curves of running training jobs can be watched.

The choice reaches jobs as environment variables: it is no parameter of a job, so changing it makes
none run again. Nothing leaves the machine unless the user says so: trackio and TensorBoard write
files, Weights & Biases is set to offline.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

Tracker = Literal["auto", "trackio", "tensorboard", "wandb", "none"]

VARIABLE, PROJECT = "SAGE_TRACKING", "SAGE_TRACKING_PROJECT"
FOLDER = "SAGE_TRACKING_FOLDER"


def chosen(choice: Tracker) -> str:
    """The tracker that `choice` means here: `auto` is trackio where it is installed, else `none`.

    Raises ValueError for one that is not installed.
    """
    if choice == "auto":
        return "trackio" if _is_installed("trackio") else "none"
    if choice != "none" and not _is_installed(choice):
        raise ValueError(
            f"tracking: {choice}, but the package is not installed; run `pip install {choice}` in "
            "the environment, or set tracking: none in config/config.yaml"
        )
    return choice


def for_jobs(choice: Tracker, study: str, folder: Path) -> dict[str, str]:
    """Environment variables that tell the jobs of `study` to write curves below `folder`.

    The user's own variables of a tracker stand before these. Raises ValueError as `chosen` does.
    """
    place = str(folder.absolute())
    of_trackers = {"TRACKIO_DIR": place, "WANDB_DIR": place, "WANDB_MODE": "offline"}
    return {
        VARIABLE: chosen(choice),
        PROJECT: study,
        FOLDER: place,
        "WANDB_PROJECT": study,
        **{name: os.environ.get(name, value) for name, value in of_trackers.items()},
    }


def reporting(scratch: Path, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Arguments of a Trainer that make it report, named after its job's `scratch` folder.

    Without the variables of `for_jobs` it reports to nothing.
    """
    tracker = environment.get(VARIABLE, "none")
    if tracker == "none":
        return {"report_to": "none"}
    name = "/".join(part for part in scratch.parts[-3:] if part != "scratch")
    folder = Path(environment[FOLDER])
    folder.mkdir(parents=True, exist_ok=True)
    if tracker == "tensorboard":  # which takes its folder from the environment alone
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / name)
    return {"report_to": tracker, "run_name": name, "project": environment[PROJECT]}


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
