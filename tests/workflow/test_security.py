"""Hostile completions stay text, names stay in their folder, tokens stay out, and no pickle."""

from __future__ import annotations

import ast
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from conftest import ROOT, TOKENS
from hostile import hostile_texts
from html5lib import HTMLParser
from pages import opened

from sage.evaluation.metrics import write_metrics
from sage.exhibits import (
    KINDS,
    figures_of,
    frames_of,
    kind_of,
    load_study,
    measure,
    tables_of,
    write_piece,
)
from sage.grading import STATUSES
from sage.problems.entries import DataFile, HubFiles
from sage.problems.record import Problem, read_problems, write_problems
from sage.report import browser
from sage.report.loader import PageContent, PageFiles, read_sources
from sage.report.page import render_page
from sage.results import Results
from sage.runtime.manifest import Manifest
from sage.sampling import transformers_engine
from sage.sampling.interface import Completion
from sage.study import RL, ResolvedStudy, StudyError
from sage.study.bases import HubBase, PackageBase
from sage.tasks import Grader
from sage.tools.archive import write_archive
from sage.training.processes import dumped, loaded

REPORT = "http://127.0.0.1:9"

OF_TRAINING = {"gradient_norms", "training", "learned_guide"}
"""Kinds of exhibits that show numbers of training, and read no completion."""

pytestmark = [pytest.mark.timeout(900)]


@pytest.fixture
def hostile_results(smoke: Path, tmp_path: Path) -> tuple[Results, Path]:
    """The smoke study with hostile completions, answers, problems and ids; and the canary."""
    canary = tmp_path / "canary"
    texts = hostile_texts(REPORT, canary)
    folder = tmp_path / "results/smoke"
    for part in ("models", "samples", "problems"):
        shutil.copytree(smoke / part, folder / part)
    for number, path in enumerate(sorted((folder / "samples").rglob("*.parquet"))):
        frame = pd.read_parquet(path)
        chosen = [texts[(row + 7 * number) % len(texts)] for row in range(len(frame))]
        statuses = ["correct" if row % 2 else "wrong" for row in range(len(frame))]
        frame.assign(completion=chosen, answer=chosen, status=statuses).to_parquet(path)
    for path in sorted((folder / "problems").glob("*.jsonl")):
        problems = [
            Problem(**{**vars(problem), "problem": f"{problem.problem} {texts[place]}"})
            for place, problem in enumerate(read_problems(path))
        ]
        write_problems(problems, path)
    return Results(folder), canary


class Hostile:
    """A sampler that draws hostile completions."""

    def __init__(self, texts: list[str]) -> None:
        self.texts, self.drawn = texts, 0

    def sample(self, requests: list[Any], sampling: Any) -> list[Completion]:
        start, self.drawn = self.drawn, self.drawn + len(requests)
        texts = [self.texts[(start + row) % len(self.texts)] for row in range(len(requests))]
        return [Completion(text, (1, 2), "stop", (0.0, 0.0)) for text in texts]


@pytest.mark.slow
def test_hostile_completions_stay_text_in_every_exhibit(
    hostile_results: tuple[Results, Path],
    smoke_study: ResolvedStudy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results, canary = hostile_results
    texts = hostile_texts(REPORT, canary)
    sampler = Hostile(texts)
    monkeypatch.setattr(transformers_engine, "open_sampler", lambda *_, **__: sampler)
    paper, counts = ROOT / "reports/paper", dict[str, int]()
    study = smoke_study
    of_pairs: dict[tuple[str, str], list[Path]] = {}
    for model in study.study.models:
        for run, benchmark in study.evaluated_runs(model):
            of_pairs.setdefault((model, benchmark), []).append(results.samples(run, benchmark))
    for name in study.study.exhibits:
        kind = kind_of(study, name)
        files = kind.inputs(study, results, name)
        paths = [*files.get("samples", ())]
        for pair in kind.evaluated(study):
            paths += (evaluated := of_pairs[pair])
            write_metrics(evaluated, 100, results.evaluated(*pair))
        read = [pd.read_parquet(path)["completion"] for path in dict.fromkeys(paths)]
        sampler.drawn = 0
        settings = {**study.study.exhibits[name].model_dump(), "title": ""}
        if kind.measures:
            folders = results.measured(name), results.exhibit_shards(name)
            own, manifest = kind.settings(study, name), Manifest({}, 1, 0.0)
            measure(settings, own, files, folders[0], "cpu", folders[1], manifest)
        measured = frames_of(study, name, results)
        for table, suffix in tables_of(study, name).items():
            write_piece(study, name, suffix, measured, paper, results.table(table))
        for figure, suffix in figures_of(study, name).items():
            write_piece(study, name, suffix, measured, paper, results.figure(figure))
        number = sum(map(len, read)) + sampler.drawn
        counts[kind.kind] = min(number, counts.get(kind.kind, number))
    # These show counts, sums over tokens or the paper's numbers, no text of a completion; smoke has
    # none of them.
    of_counts = {"guide_dose", "equal_accuracy", "cost_free_baselines"}
    of_counts |= {"distinct", "strata"}
    assert counts.keys() == KINDS.keys() - of_counts
    assert {kind_name for kind_name, number in counts.items() if not number} <= OF_TRAINING
    assert not canary.exists()
    for path in sorted(results.folder.glob("report/**/*")):
        if path.suffix in (".tex", ".csv", ".svg"):
            content = path.read_text(encoding="utf-8")
            assert not any(x in content for x in ("<script", r"\input{/", str(canary))), path


def test_hostile_answers_get_a_verdict_and_nothing_else(tmp_path: Path) -> None:
    texts = hostile_texts(REPORT, tmp_path / "canary")
    grader = Grader()
    verdicts = grader.grade_many([(text, "2", "math") for text in texts])
    statuses = [verdict.status for verdict in verdicts]
    assert len(statuses) == len(texts) > 100
    assert set(statuses) <= set(STATUSES)
    third = len(texts) // 3
    # Of the last third each ends with the answer 2; the others must not come out correct.
    assert statuses[2 * third :].count("correct") >= third - 5
    assert "correct" not in statuses[: 2 * third]
    assert not (tmp_path / "canary").exists()


def page_of(study: ResolvedStudy, folder: Path, texts: list[str]) -> str:
    """A page whose browser shows `texts` as completions and in problems."""
    benchmark = study.model("tiny").benchmarks[0]
    half = texts[: len(texts) // 3]
    problems = [
        Problem(f"p{i} {text[:40]}", f"problem {text}", "2", "math", "", "x", "y")
        for i, text in enumerate(half)
    ]
    file = folder / f"problems/{benchmark}.jsonl"
    write_problems(problems, file)
    samples = []
    for row in ("base", "grpo"):
        rows = [
            (problem.problem_id, 0, index, text, text, status, 5, "stop")
            for place, problem in enumerate(problems)
            for index, status in enumerate(("correct", "wrong", "unparsed"))
            for text in [texts[(3 * place + index) % len(texts)]]
        ]
        columns = ["problem_id", "eval_seed", "sample_index", "completion", "answer", "status"]
        frame = pd.DataFrame(rows, columns=[*columns, "n_tokens", "finish_reason"])
        path = folder / f"samples/tiny/{row}/seed{int(row != 'base')}/{benchmark}.parquet"
        path.parent.mkdir(parents=True)
        frame.to_parquet(path)
        samples.append(path)
    browser.write_excerpts(samples, {benchmark: file}, folder / "samples.json")
    content = PageContent(
        excerpts=(folder / "samples.json").read_text(encoding="utf-8"),
        sources=read_sources(ROOT / "reports"),
    )
    results = Results(folder)
    return render_page(study, content, PageFiles(results, results, ROOT / "reports"), results.page)


VISITS = """
<script>
const pick = document.querySelector("#browser [name=problem]");
for (let place = 0; place < pick.options.length; place += 1) {
  pick.selectedIndex = place;
  pick.dispatchEvent(new Event("change", { bubbles: true }));
}
document.body.dataset.visited = String(pick.options.length);
document.body.dataset.inside = String(document.querySelectorAll(
  "#browser :is(img, script, iframe, object, embed, style, link, meta, base, a, svg)").length);
</script></body>"""


def test_scripts_in_completions_report_nothing_back(
    chromium: str, smoke_study: ResolvedStudy, server: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, asked = server
    texts = hostile_texts(address, tmp_path / "canary")
    page = page_of(smoke_study, tmp_path / "page", texts)
    # Without the page's own policy: it is the escaping that must hold.
    free = re.sub(r"<meta http-equiv=\"?Content-Security-Policy[^>]*>", "", page)
    assert free != page
    for shown in (page, free.replace("</body>", VISITS)):
        markup, _ = opened(chromium, shown, tmp_path)
        assert asked == []
    assert re.search(r'data-visited="(\d+)"', markup)[1] == str(len(texts) // 3)
    assert 'data-inside="0"' in markup
    probe = f"<body><script>fetch('{address}/probe')</script></body>"
    opened(chromium, probe, tmp_path)
    assert asked == ["/probe"]  # so a script that ran would have been heard


def test_a_page_of_hostile_completions_has_no_element_of_theirs(
    smoke_study: ResolvedStudy, tmp_path: Path
) -> None:
    texts = hostile_texts(REPORT, tmp_path / "canary")
    plain = ["a plain completion"] * len(texts)
    pages = [page_of(smoke_study, tmp_path / n, t) for n, t in (("a", texts), ("b", plain))]
    counts = []
    for page in pages:
        tree = HTMLParser(namespaceHTMLElements=False).parse(page)
        names = [element.tag for element in tree.iter() if isinstance(element.tag, str)]
        counts.append({name: names.count(name) for name in set(names)})
        assert not [name for e in tree.iter() for name in e.attrib if str(name).startswith("on")]
    assert counts[0] == counts[1]


OUTSIDE = ["../x", "..", ".", "/tmp/x", "a/b", "a\\b", ".hidden", "~/x", "a\nb"]
OUTSIDE += ["a b", "", "é", "-x"]


def with_name(config: Path, place: str, name: str) -> None:
    """Write the smoke study with `name` as the name of something."""
    file = config / "studies/smoke.yaml"
    study = yaml.safe_load(file.read_text())
    rows = yaml.safe_load((config / "algorithms.yaml").read_text())
    if place == "exhibits":
        study["exhibits"][name] = study["exhibits"].pop("table4")
    elif place == "problems":
        study["problems"][name] = study["problems"].pop("longer")
        study["exhibits"]["table9"]["benchmarks"] = [name]
    elif place == "models":
        study["models"][name] = study["models"].pop("tiny_full")
        study["exhibits"]["figure6"]["model"] = name
    elif place == "algorithms":
        rows[name] = rows["grpo"]
        study["models"]["tiny"]["algorithms"].append(name)
        (config / "algorithms.yaml").write_text(yaml.safe_dump(rows))
    elif place == "seeds":
        study["seeds"] = [name]
    file.write_text(yaml.safe_dump(study, sort_keys=False))


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("place", ["exhibits", "problems", "models", "algorithms", "seeds"])
def test_a_name_that_leads_out_of_the_results_is_refused(
    config: Path, place: str, name: str
) -> None:
    with_name(config, place, name)
    with pytest.raises(StudyError, match=place):
        load_study("smoke", config)


@pytest.mark.parametrize("place", ["exhibits", "problems", "models", "algorithms"])
def test_a_plain_name_is_taken_in_the_same_place(config: Path, place: str) -> None:
    with_name(config, place, "plain-1.x")
    load_study("smoke", config)


@pytest.mark.parametrize("name", ["../x.jsonl", "a/../../x.jsonl", "/etc/x.jsonl", "..\\..\\x"])
def test_a_data_file_stays_in_its_folder(name: str) -> None:
    with pytest.raises(ValueError, match="path"):
        DataFile.model_validate({"path": name})


@pytest.mark.parametrize("name", ["../x", "x/..", "/etc/x", "a/b/c", "./x", "a", ".a/b"])
def test_a_repository_is_no_path(name: str) -> None:
    with pytest.raises(ValueError, match="repository"):
        HubFiles.model_validate({"repository": name, "files": [{"path": "x.jsonl"}]})
    with pytest.raises(ValueError, match="repository"):
        HubBase.model_validate({"source": "hub", "repository": name})


@pytest.mark.parametrize(
    ("package", "file"),
    [("os.path", "x.gguf"), ("../x", "x.gguf"), ("x", "../x.gguf"), ("x", "/x.gguf"), ("x", "..")],
)
def test_a_package_and_its_file_are_no_paths(package: str, file: str) -> None:
    with pytest.raises(ValueError, match=r"package|file"):
        PackageBase.model_validate({"source": "package", "package": package, "file": file})


def test_tokens_are_in_no_log_manifest_page_or_archive(
    project: Path, smoke: Path, smoke_study: ResolvedStudy, tmp_path: Path
) -> None:
    archive = tmp_path / "smoke.crate.zip"
    write_archive(smoke_study, smoke, project, archive)
    with zipfile.ZipFile(archive) as file:
        inside = {f"archive/{name}": file.read(name) for name in file.namelist()}
    outside = {
        str(path): path.read_bytes()
        for folder in (project / "results", project / ".snakemake")
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert any(name.endswith(".log") for name in outside)
    assert any(name.endswith("manifest.json") for name in outside)
    assert any(name.endswith("index.html") for name in inside)
    held = [
        (name, variable)
        for name, content in {**inside, **outside}.items()
        for variable, value in TOKENS.items()
        if value.encode() in content
    ]
    assert held == []


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def called(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def sources() -> list[Path]:
    found = [*(ROOT / "sage").rglob("*.py"), *(ROOT / "workflow").rglob("*.py")]
    assert len(found) > 100
    return found


def test_nothing_reads_or_writes_pickles_or_runs_text() -> None:
    modules = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    calls = {"torch.save", "eval", "exec", "compile", "os.system", "yaml.unsafe_load"}
    for path in sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not modules & {name.split(".")[0] for name in imported(tree)}, path
        for name, node in called(tree):
            # What a choice remembers lies beside the trainer's optimizer, and is read as that is.
            if not (name == "torch.save" and path.name == "trainer.py"):
                assert name not in calls, f"{path}:{node.lineno}"
            assert not name.endswith(("read_pickle", "to_pickle")), f"{path}:{node.lineno}"
            words = {word.arg: word.value for word in node.keywords}
            if name == "torch.load":
                assert ast.unparse(words["weights_only"]) == "True", f"{path}:{node.lineno}"
            for unsafe in ("shell", "allow_pickle", "trust_remote_code"):
                if unsafe in words:
                    assert ast.unparse(words[unsafe]) == "False", f"{path}:{node.lineno} {unsafe}"


def test_every_pretrained_thing_is_loaded_without_code_of_its_repository() -> None:
    auto = re.compile(r"Auto\w+\.from_pretrained")
    found = 0
    for path in sources():
        for name, node in called(ast.parse(path.read_text(encoding="utf-8"))):
            if auto.fullmatch(name) and not name.startswith("AutoConfig"):
                found += 1
                words = {word.arg for word in node.keywords}
                assert "trust_remote_code" in words, f"{path}:{node.lineno}"
    assert found >= 3


def told(
    place: Path, problems: list[Problem], settings: RL, pair: tuple[int, float], manifest: Manifest,
    *, seed: int, rest: dict[str, bool],
) -> tuple[Any, ...]:  # fmt: skip
    """A call's arguments as another process gets them, by the types that stand here."""
    return place, problems, settings, pair, manifest, seed, rest


def test_a_call_in_another_process_is_handed_over_as_data(smoke_study: ResolvedStudy) -> None:
    settings = smoke_study.model("tiny").rl
    problems = [Problem("1", "1+1", "2", "math", "", "x", "y")]
    manifest = Manifest({"a": [1, {"b": None}]}, 2, 3.5)
    arguments = (Path("x"), problems, settings, (1, 2.5), manifest)
    text = dumped(told, arguments, {"seed": 3, "rest": {"k": True}})
    assert loaded(json.dumps(json.loads(text)))() == (*arguments, 3, {"k": True})
    with pytest.raises(TypeError, match="cannot be handed to another process"):
        dumped(print, (object(),), {})
