"""What is written from the types: the tables of config/README.md and the schemas of editors.

A schema is tried as an editor uses it: on the files of config/, whole and with a mistake in them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
import yaml
from pydantic import Field

from sage.fields import Name, Share, Strict, about
from workflow.settings_docs import markdown, schemas
from workflow.settings_docs import sections as settings_sections
from workflow.settings_docs.__main__ import documents
from workflow.settings_docs.sections import FILES, Key, Section, keys, leaves, sections

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "config"
WRITTEN = sorted(
    path for file in FILES for path in CONFIG.glob(file.name.replace("{name}", "*"))
)  # the files that people write
KEYS = [
    (section, key)
    for file in FILES
    for section in sections(file)
    for key in keys(section.kind)
    if not (section.tag and section.tag[0] == key.name)
]
IDS = [f"{section.kind.__name__}.{key.name}" for section, key in KEYS]


def test_what_is_committed_is_what_the_types_say() -> None:
    for path, content in documents(CONFIG).items():
        assert path.read_text(encoding="utf-8") == content, f"{path}: run make settings"


@pytest.mark.parametrize(("section", "key"), KEYS, ids=IDS)
def test_every_key_says_what_it_means(section: Section, key: Key) -> None:
    assert re.search(r"\w{3}", key.meaning)
    assert not key.meaning.endswith(".")
    if {int, float} & set(leaves(key.field.annotation)):
        assert key.unit, "a number has a unit"


def test_a_table_says_unit_range_default_and_name_in_trl() -> None:
    class Inner(Strict):
        """A section."""

    class Toy(Strict):
        """Toys."""

        kind: Literal["toy"]
        rollouts: Annotated[int, Field(ge=2)]
        """how many | at
        once [completions; TRL: num_generations]"""
        share: Share = 0.5
        """a part [share, 0 to 1]"""
        people: Annotated[
            list[Annotated[int, Field(ge=2, le=8)]], about("numbers of people", unit="people")
        ]
        fast: bool = False
        """whether it is fast"""
        rows: Annotated[list[Name] | None, about("rows; `null` takes all")] = None
        inner: Annotated[Inner | None, about("what is in it")]

    toys = Section(Toy, ("toys.{name}",), ("kind", "toy"))
    assert markdown.table(toys, {Inner: "inner"}).splitlines() == [
        "| key | unit | default | TRL | meaning |",
        "| --- | --- | --- | --- | --- |",
        "| `kind` | `toy` | – |  | selects this kind |",
        "| `rollouts` | completions, at least 2 | – | `num_generations` | how many \\| at once |",
        "| `share` | share, 0 to 1 | `0.5` |  | a part |",
        "| `people` | list of people, 2 to 8 | – |  | numbers of people |",
        "| `fast` | `true`, `false` | `false` |  | whether it is fast |",
        "| `rows` | list of names | `null` |  | rows; `null` takes all |",
        "| `inner` | [section](#inner) or `null` | – |  | what is in it |",
    ]


def test_a_page_without_the_marks_of_a_file_is_refused() -> None:
    page = (CONFIG / "README.md").read_text(encoding="utf-8")
    lacking = page.replace("<!-- begin generated: config.yaml -->", "")
    with pytest.raises(ValueError, match=r"marked for studies.*for each of config\.yaml, "):
        markdown.filled(lacking)


def test_links_within_the_page_lead_to_headings() -> None:
    page = (CONFIG / "README.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", page, re.M)
    anchors = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
    links = set(re.findall(r"\]\(#([^)]*)\)", page))
    assert len(anchors) == len(headings)
    assert len(links) > 20
    assert links <= anchors


def test_the_table_of_studies_has_each_once() -> None:
    page = (CONFIG / "README.md").read_text(encoding="utf-8")
    table = page.split("## The studies")[1].split("<!-- begin")[0]
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = [name for cell in first for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(file.stem for file in CONFIG.glob("studies/*.yaml"))


@pytest.mark.slow
def test_names_in_trl_are_settings_of_trl() -> None:
    from trl import GRPOConfig, ModelConfig, SFTConfig

    known = {
        field.name
        for config in (GRPOConfig, SFTConfig, ModelConfig)
        for field in dataclasses.fields(config)
    }
    named = {key.trl for _, key in KEYS if key.trl}
    assert named >= {"num_generations", "beta"}
    assert named <= known


def schema_of(file: Path) -> dict[str, Any]:
    """The schema that the first line of a file names, from where an editor looks for it."""
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert named, f"{file}: the first line names no schema"
    return dict(json.loads((file.parent / named[1]).read_text(encoding="utf-8")))


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: file.name)
def test_a_file_of_the_project_is_valid_under_the_schema_that_it_names(file: Path) -> None:
    schema = schema_of(file)
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.Draft7Validator(schema).validate(yaml.safe_load(file.read_text(encoding="utf-8")))


STUDY, ALGORITHMS = CONFIG / "studies/smoke.yaml", CONFIG / "algorithms.yaml"
MISTAKES = [
    (STUDY, "sedes", [1], "", "'sedes' was unexpected"),
    (STUDY, "models.tiny.rl.stepz", 4, "models.tiny.rl", "'stepz' was unexpected"),
    (STUDY, "models.tiny.rl.steps", "four", "models.tiny.rl.steps", "not of type 'integer'"),
    (STUDY, "models.tiny.rl.rollouts", 1, "models.tiny.rl.rollouts", "less than the minimum of 2"),
    (STUDY, "models.tiny.rl.engine", "vlm", "models.tiny.rl.engine", "not one of"),
    (STUDY, "models.my model", {}, "models", "'my model' does not match"),
    (STUDY, "problems.knights.per_sise", 3, "problems.knights", "'per_sise' was unexpected"),
    (STUDY, "exhibits.table2.sample", 3, "exhibits.table2", "'sample' was unexpected"),
    (ALGORITHMS, "grpo.loss", "grop", "grpo.loss", "not one of"),
    (ALGORITHMS, "grpo_branch.guide.settings.ratoi", 1, "grpo_branch.guide.settings", "'ratoi'"),
]


@pytest.mark.parametrize(("file", "key", "value", "place", "message"), MISTAKES)
def test_a_mistake_is_marked_where_it_stands(
    file: Path, key: str, value: Any, place: str, message: str
) -> None:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    *parents, last = key.split(".")
    section = content
    for part in parents:
        section = section[part]
    section[last] = value
    errors = list(jsonschema.Draft7Validator(schema_of(file)).iter_errors(content))
    for error in errors:
        errors += error.context or ()
    marked = {(".".join(map(str, error.absolute_path)), error.message) for error in errors}
    assert any(where == place and message in said for where, said in marked), marked


def test_a_guide_of_ones_own_may_have_any_settings() -> None:
    content = yaml.safe_load(ALGORITHMS.read_text(encoding="utf-8"))
    content["grpo_branch"]["guide"] = {"kind": "my_guides:Bold", "settings": {"anything": 3}}
    validator = jsonschema.Draft7Validator(schema_of(ALGORITHMS))
    validator.validate(content)
    content["grpo_branch"]["guide"]["kind"] = "bold"
    assert not validator.is_valid(content)


def test_kinds_from_a_registry_are_open_to_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Toy(Strict):
        kind: str

    class Ball(Toy):
        """A ball."""

        size: Annotated[int, about("how wide", unit="cm")]

    class Box(Strict):
        """A box."""

        toys: Annotated[dict[Name, Toy], about("what is in it")]

    family = settings_sections.Family(Box, "toys", {"ball": Ball}, flat=True)
    monkeypatch.setattr(settings_sections, "FAMILIES", (family,))
    monkeypatch.setattr(schemas, "FAMILIES", (family,))
    box = settings_sections.File("box.yaml", Box, "box")
    assert sections(box)[1] == Section(Ball, ("toys.{name}",), ("kind", "ball"))
    validator = jsonschema.Draft7Validator(schemas.schema(box))
    for toy, valid in (
        ({"kind": "ball", "size": 3}, True),
        ({"kind": "my_toys:Kite", "colour": "red"}, True),
        ({"kind": "ball", "size": "wide"}, False),
        ({"kind": "ball", "size": 3, "colour": "red"}, False),
        ({"kind": "kite", "colour": "red"}, False),
    ):
        assert validator.is_valid({"toys": {"red": toy}}) is valid, toy


def test_an_editor_is_told_unit_default_and_name_in_trl() -> None:
    section = schema_of(STUDY)["$defs"]["RL"]["properties"]
    said = section["iterations"]["description"].splitlines()
    assert said[-1] == "Unit: passes; Default: 1; TRL: num_iterations"
