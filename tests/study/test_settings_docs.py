"""What is written from the types: the schemas of editors, and the pages of keys made of them.

A schema is tried as an editor uses it: on the files of config/, whole and with a mistake in them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import pytest
import yaml

from sage.fields import Name, Strict, about
from workflow.settings_docs import schemas
from workflow.settings_docs.__main__ import documents
from workflow.settings_docs.schemas import FILES

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
WRITTEN = sorted(
    path for file in FILES for path in CONFIG.glob(file.name.replace("{name}", "*"))
)  # the files that people write
PAGES = [f"keys/{file.schema}.md" for file in FILES]


def test_what_is_committed_is_what_the_types_say() -> None:
    for path, content in documents(CONFIG).items():
        assert path.read_text(encoding="utf-8") == content, f"{path}: run make settings"


def integers(schema: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        if schema.get("type") == "integer" and "/levels/" not in place:  # those are labels
            yield place, schema
        for key, value in schema.items():
            yield from integers(value, f"{place}/{key}")
    for value in schema if isinstance(schema, list) else ():
        yield from integers(value, place)


def test_no_number_of_a_study_is_without_an_end() -> None:
    """A slip of digits must not take the machine's memory."""
    for path, content in documents(CONFIG).items():
        schema = json.loads(content) if path.suffix == ".json" else {}
        ends = {"maximum", "exclusiveMaximum"}
        assert [place for place, one in integers(schema) if not ends & one.keys()] == [], path


def test_each_file_has_a_page_of_its_keys(site: Any) -> None:
    assert [(page, f"config/{file.name}") for page, file in zip(PAGES, FILES, strict=True)] == [
        *site.KEYS.items()
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_key_says_what_it_means_and_each_number_its_unit(site: Any, page: str) -> None:
    rows = re.findall(r"^\| `(\S+)` \| (.+?) \| (.*) \|$", site.keys_page(page), re.M)
    assert len(rows) >= 3
    for key, takes, said in rows:
        meaning = re.split(r"\. (?=Unit: |Default: |TRL: )", said)[0]
        assert re.search(r"\w{3}", meaning), key
        assert not meaning.endswith("."), key
        if {"integer", "number"} & {*takes.replace(",", "").split()}:
            assert "Unit: " in said, key


def test_the_page_of_a_study_has_tables_with_links(site: Any) -> None:
    page = site.keys_page("keys/study.md")
    rollouts = (
        "| `rollouts` | integer, required | completions of each problem in a step: the group. "
        "Unit: completions; TRL: num_generations |"
    )
    (section,) = (each for each in page.split("\n## ") if each.startswith("RL\n"))
    assert rollouts in section.splitlines()
    assert "| `sampling` | [Sampling](#sampling), required | " in section
    titles = re.findall(r"^## (.+)$", page, re.M)
    assert titles[0] == "Study"
    assert len(titles) == len(set(titles)) > 40
    links = set(re.findall(r"\]\(#([^)]*)\)", page))
    assert links < {title.lower().replace(" ", "-") for title in titles}
    methods = site.keys_page("keys/algorithms.md")
    assert "| `guide.clamp` | list of number | " in methods
    assert "\n## guide branch\n" in methods


def test_the_table_of_studies_has_each_once() -> None:
    page = (CONFIG / "README.md").read_text(encoding="utf-8")
    table = page.split("## The studies")[1].split("\n## ")[0]
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
    named = set(re.findall(r"TRL: (\w+)", "".join(map(schemas.text, FILES))))
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

    family = schemas.Family(Box, "toys", {"ball": Ball}, flat=True)
    monkeypatch.setattr(schemas, "FAMILIES", (family,))
    box = schemas.File("box.yaml", Box, "box")
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
