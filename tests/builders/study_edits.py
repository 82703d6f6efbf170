"""What tests of studies share: edits of a copy of `config/`, and the message that they bring.

The file is edited as data where only the value matters, and as text where it is the YAML that is
at fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sage.study import StudyError

ROOT = Path(__file__).resolve().parents[2]
STUDIES = sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))
FOLLOW_UPS = {path.parent.name: str(path) for path in ROOT.glob("reports/*/*/study.yaml")}
"""Settled studies beside what they found, by name: their files."""

STUDY, ALGORITHMS = "studies/smoke.yaml", "algorithms.yaml"
DROPPED = object()
JARGON = re.compile(
    r"pydantic|input should|dictionary|instance of|discriminator|\btag\b|validation|value error"
    r"|__init__|argument|NoneType|fault\(s\)|\^\["
)


def edit(file: Path, key: str, value: Any) -> None:
    """Set (or drop) the value at a dotted key of a YAML file."""
    content = yaml.safe_load(file.read_text())
    *parents, last = [int(part) if part.isdigit() else part for part in key.split(".")]
    section = content
    for part in parents:
        section = section[part]
    if value is DROPPED:
        del section[last]
    else:
        section[last] = value
    file.write_text(yaml.safe_dump(content, sort_keys=False))


def message_of(action: Callable[[], object]) -> str:
    """The message of the StudyError that `action` raises, in words for users."""
    with pytest.raises(StudyError) as caught:
        action()
    message = str(caught.value)
    assert not JARGON.search(message), message
    return message


def smoke_with(tmp_path: Path, algorithm: str, **problems: Any) -> Path:
    """The smoke study with another algorithm for its model, and changes to the set it trains on."""
    study = yaml.safe_load((ROOT / "config/studies/smoke.yaml").read_text())
    study["models"]["tiny"]["algorithms"].append(algorithm)
    study["problems"]["arithmetic_train"] |= problems
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(study))
    return file
