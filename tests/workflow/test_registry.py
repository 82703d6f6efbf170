"""What an algorithm can choose by name or as a class of its user's own, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from study_edits import ALGORITHMS, edit

from sage.exhibits import load_study
from sage.exhibits.kind import Kind
from sage.method.guides import BranchGuide
from sage.runtime.dependencies import module_files
from sage.study import CHOICES, Algorithm, Guide, ResolvedStudy, StudyError, choice_files

PLAIN = {"title": "x", "loss": "grpo", "kl": "reverse", "estimator": "k3"}

OWN = """
from dataclasses import dataclass
from typing import Annotated
from pydantic import Field

@dataclass(frozen=True)
class Bold:
    ratio: Annotated[float, Field(ge=0.0)] = 0.3
    def factors(self, signals, moment):
        return 1.0 + self.ratio * signals.log_probs.exp()

class Mute:
    pass

class Short:
    def factors(self, signals):
        return signals

class Greedy:
    def __init__(self, **settings):
        raise RuntimeError("made")
    def factors(self, signals, moment):
        return signals

class Aimless:
    def values(self, log_probs):
        return log_probs

def function(signals, moment):
    raise RuntimeError("called")
"""


HELPED = """
from dataclasses import dataclass
import numpy
import own_package.lists
from own_choices import Mute
from sage.method.guides import BranchGuide

class Helped(BranchGuide):
    def factors(self, signals, moment):
        import own_late
        return own_late.factor() * super().factors(signals, moment)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of a user's own that can be imported."""
    file = tmp_path / "own_choices.py"
    file.write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_choices", raising=False)
    return file


@pytest.mark.parametrize("name", CHOICES)
def test_every_name_of_a_registry_leads_to_a_class_that_serves(name: str) -> None:
    family = CHOICES[name].family
    for kind in family.classes:
        assert all(callable(getattr(family.find(kind), method)) for method in family.methods)


def test_a_kind_alone_stands_for_a_section() -> None:
    short = Algorithm.model_validate(PLAIN | {"guide": "learned"})
    whole = Algorithm.model_validate(
        PLAIN | {"estimator": {"kind": "k3"}, "guide": {"kind": "learned", "settings": {}}}
    )
    assert short == whole
    assert Algorithm.model_validate(short.model_dump()) == short


def test_a_choice_is_made_with_its_settings() -> None:
    assert Guide(kind="branch", settings={"ratio": 0.5}).made == BranchGuide(ratio=0.5)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("guide", "brunch", "'brunch' is not a guide, nor module:Class of one; did you mean 'bra"),
        ("guide", "os:system", "'os:system' is 'builtin_function_or_method', not a class; a guide"),
        ("guide", "subprocess:Popen", "'subprocess:Popen' has no method factors that takes sig"),
        ("guide", "own_choices:function", "is 'function', not a class"),
        ("guide", "own_choices:Mute", "has no method factors that takes signals, moment"),
        ("guide", "own_choices:Short", "has no method factors that takes signals, moment"),
        ("guide", "own_choices:Greedy", "must name its settings one by one"),
        ("guide", "own_choices:Absent", "cannot be imported \\(AttributeError"),
        ("guide", "nowhere_at_all:Bold", "cannot be imported \\(ModuleNotFoundError"),
        ("guide", ":Bold", "cannot be imported \\(ValueError"),
        ("estimator", "own_choices:Aimless", "lacks the attribute direction"),
    ],
)
def test_what_does_not_serve_is_refused_before_it_is_made_or_called(
    own: Path, name: str, kind: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        CHOICES[name].family.find(kind)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ratios": 0.1}, "settings.ratios: unknown key; did you mean 'ratio'"),
        ({"ratio": "much"}, "settings.ratio: must be a number, not 'much'"),
        ({"ratio": -1.0}, "settings.ratio: must be at least 0.0, not -1.0"),
    ],
)
def test_settings_of_ones_own_class_are_checked(
    own: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Guide(kind="own_choices:Bold", settings=settings)


def test_a_command_in_a_study_is_not_run(config: Path, tmp_path: Path) -> None:
    """A study whose guide is a function of the standard library: refused, with its reason."""
    ran = tmp_path / "ran"
    guide = {"kind": "os:system", "settings": {"command": f"touch {ran}"}}
    edit(config / ALGORITHMS, "grpo.guide", guide)
    with pytest.raises(StudyError, match=r"grpo\.guide\.kind: 'os:system' is .+ not a class"):
        load_study("smoke", config)
    assert not ran.exists()


def test_what_a_users_file_imports_counts_with_it(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "own_guide.py": HELPED,
        "own_late.py": "import own_choices\n",
        "own_package/__init__.py": "",
        "own_package/lists.py": "from . import words\nimport own_package.deep.more\n",
        "own_package/words.py": "",
        "own_package/deep/more.py": "from .. import quiet\nfrom ..last import x\n",
        "own_package/last.py": "x = 1\n",
        "own_package/quiet.py": "",
        "own_other.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    files = Guide.family.files("own_guide:Helped")
    used = {tmp_path / name for name in texts if name != "own_other.py"} | {own}
    assert {file for file in files if file.is_relative_to(tmp_path)} == used
    assert ROOT / "sage/method/guides.py" in files
    assert all(
        file.is_relative_to(tmp_path) or file.is_relative_to(ROOT / "sage") for file in files
    )


def test_of_an_installed_package_the_package_counts() -> None:
    files = [Path(file) for file in module_files("packaging.version")]
    assert {"version.py", "_structures.py", "__init__.py"} <= {file.name for file in files}
    assert {file.parent.name for file in files} == {"packaging"}
    with pytest.raises(ModuleNotFoundError):
        module_files("nowhere_at_all")
    with pytest.raises(ValueError, match=r"no module 'sage\.nothing'"):
        module_files("sage.nothing")


def test_files_behind_the_choices_are_known(own: Path) -> None:
    guide = {"kind": "own_choices:Bold"}
    files = choice_files(Algorithm.model_validate(PLAIN | {"guide": guide}))
    assert own in files
    assert {ROOT / "sage/method" / name for name in ("anchors.py", "advantages.py")} <= set(files)
    assert ROOT / "sage/method/guides.py" not in files
    assert ROOT / "sage/method/guides.py" in choice_files(
        Algorithm.model_validate(PLAIN | {"guide": "branch"})
    )


def test_a_study_is_read_without_torch() -> None:
    heavy = ["torch", "transformers", "datasets", "scipy", "matplotlib"]  # tables bring pandas
    program = (
        "import json, sys; from pathlib import Path; "
        "from sage.exhibits import KINDS, kind_class, load_study; "
        "load_study('mini', Path('config')); [kind_class(kind) for kind in KINDS]; "
        f"print(json.dumps([name for name in {heavy} if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []


def test_how_numbers_are_shown_decides_no_measurement(smoke_study: ResolvedStudy) -> None:
    """Code for drawing is not among the files that an exhibit is measured again for."""
    files = {
        kind.kind: {os.path.relpath(file, ROOT / "sage") for file in kind.code(study)}
        for study in (smoke_study, load_study("dose", ROOT / "config"))
        for kind in study.study.exhibits.values()
        if isinstance(kind, Kind) and kind.measures
    }
    shown = {"exhibits/kind.py", "exhibits/__init__.py", "rendering/style.py"}
    assert not any(shown & of_kind for of_kind in files.values())
    assert {"exhibits/patterns.py", "exhibits/phrases.py"} <= files["patterns"]
    of_dose = files["reports.dose.dose_grid:DoseFigure"]
    assert "../reports/dose/dose_grid.py" not in of_dose
    assert {"../reports/dose/dose_effects.py", "evaluation/intervals.py"} <= of_dose
    assert "sampling/transformers_engine.py" in files["trajectory"]
