"""Files, hub data sets and model folders of one's own, and studies without RL."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import own_things
import pandas as pd
import pytest
import yaml
from conftest import ROOT, copy_project, snakemake_in
from datasets import Dataset
from study_edits import DROPPED, edit, message_of

from sage.exhibits import load_study
from sage.fetched_bases import fetch_base
from sage.policies import load_model
from sage.problems.record import DataError
from sage.runtime.manifest import Manifest
from sage.study import ResolvedStudy, StudyError
from sage.tasks import draw_problems
from sage.tasks.data import FileSet, HubSet
from sage.tools import new


@pytest.fixture
def own(own_folder: Path, tmp_path: Path) -> Path:
    """A folder with a study of its own, its model and its data, to be changed."""
    return Path(shutil.copytree(own_folder, tmp_path / "own"))


def load(folder: Path) -> ResolvedStudy:
    return load_study(str(folder / "mine.yaml"), ROOT / "config")


def set_of(file: Path, text: str | None = None, **more: Any) -> FileSet:
    """The problem set of a file, which gets this `text`."""
    if text is not None:
        file.write_text(text)
    return FileSet.model_validate({"source": "file", "title": "", "file": str(file), **more})


class TestFiles:
    def test_paths_begin_at_the_study_wherever_it_is_read_from(
        self, own: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(own.parent)
        study = load(Path("own"))
        settings, base = study.study.problems["mine"], study.model("own").base
        assert isinstance(settings, FileSet)
        assert settings.file == "own/doubles.csv"
        assert base.model_dump()["folder"] == "own/model"
        assert len(draw_problems("mine", study.problem_set("mine"))) == 10

    def test_an_extending_study_elsewhere_keeps_the_paths_of_the_extended(self, own: Path) -> None:
        (own / "deep").mkdir()
        (own / "deep/mine.yaml").write_text("extends: ../mine.yaml\ntitle: Deeper\n")
        settings = load(own / "deep").study.problems["mine"]
        assert isinstance(settings, FileSet)
        assert Path(settings.file).samefile(own / "doubles.csv")

    def test_the_ten_lines_of_the_documentation_are_a_study(self, own: Path) -> None:
        examples = re.findall(r"```yaml\n(.+?)```", (ROOT / "config/README.md").read_text(), re.S)
        (text,) = [text for text in examples if text.startswith("title:")]
        assert len(text.splitlines()) <= 10
        (own / "mine.yaml").write_text(text)
        config = (own / "model").rename(own / "my-model") / "config.json"
        with pytest.raises(StudyError, match="no room for a prompt in the max_position_embedd"):
            load(own)
        longer = json.loads(config.read_text()) | {"max_position_embeddings": 1024}
        config.write_text(json.dumps(longer))
        own_things.write_doubles(own, 3, names="question,result").rename(own / "data.csv")
        study = load(own)
        assert [run.algorithm for run, _ in study.evaluated_runs("own")] == ["base"]

    def test_csv_json_lines_and_parquet_give_the_same_problems(self, tmp_path: Path) -> None:
        rows = [{"q": "What is 1 + 1,\nplease?", "a": "2", "l": "easy"}, {"q": "2+2", "a": "4"}]
        frame = pd.DataFrame(rows).fillna({"l": "hard"})
        frame.to_csv(tmp_path / "rows.csv", index=False)
        frame.to_parquet(tmp_path / "rows.parquet")
        frame.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
        for end in ("csv", "jsonl", "parquet"):
            fields = {"problem": "q", "answer": "a", "level": "l"}
            first, second = set_of(tmp_path / f"rows.{end}", fields=fields).problems("rows")
            assert (first.problem, first.answer, first.level) == (rows[0]["q"], "2", "easy")
            assert (second.answer, second.level, second.kind) == ("4", "hard", "math")
            assert first.revision.startswith("sha256:")
            assert first.problem_id.startswith("rows-")


@pytest.mark.parametrize("answer", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_none_is_no_answer(answer: str, tmp_path: Path) -> None:
    settings = set_of(tmp_path / "a.jsonl", f'{{"problem": "a", "answer": {answer}}}\n')
    with pytest.raises(DataError, match="row 1: no answer under answer"):
        settings.problems("a")


def test_a_problem_with_two_answers_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    assert len(set_of(file, "problem,answer\na,7\nb,1\na,07\n").problems("a")) == 3
    with pytest.raises(DataError, match=r"rows 1 and 3 are one problem with .*'7' and '8'"):
        set_of(file, "problem,answer\na,7\nb,1\na,8\n").problems("a")


def test_an_answer_that_is_a_list_is_said_to_be_one(tmp_path: Path) -> None:
    settings = set_of(tmp_path / "a.jsonl", '{"problem": "a", "answer": [7, 8]}\n')
    said = r"row 1: .*, which holds list \[7, 8\]; .*`fields: \{answer: answer.0\}`"
    with pytest.raises(DataError, match=said):
        settings.problems("a")


def test_a_comma_in_the_name_of_a_column_separates_nothing(tmp_path: Path) -> None:
    fields = {"answer": ["answer, a number"], "id": ["id"]}
    rows = "problem;answer, a number;id\n1+1;2;x\n"
    settings = set_of(tmp_path / "a.csv", rows, fields=fields)
    assert [(p.problem, p.answer) for p in settings.problems("a")] == [("1+1", "2")]


def _twice(own: Path) -> None:
    (own / "doubles.csv").write_text("q,a,n\n1+1,2,x\n2+2,4,x\n")
    edit(own / "mine.yaml", "problems.mine.fields.id", "n")


def _no_safetensors(own: Path) -> None:
    (own / "model/model.safetensors").rename(own / "model/pytorch_model.bin")


def _with_code(own: Path) -> None:
    config = own / "model/config.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps({**content, "auto_map": {"AutoModel": "theirs.Model"}}))


def _no_tokenizer(own: Path) -> None:
    for file in (own / "model").glob("*token*"):
        file.unlink()


def _adapter_alone(own: Path) -> None:
    (own / "model/config.json").rename(own / "model/adapter_config.json")


def _adapter_pickled(own: Path) -> None:
    (own / "adapter").mkdir()
    for name in ("adapter_config.json", "adapter_model.bin"):
        (own / "adapter" / name).touch()
    edit(own / "mine.yaml", "models.own.base.adapter", "adapter")


def _set(key: str, value: Any) -> Callable[[Path], None]:
    return lambda own: edit(own / "mine.yaml", key, value)


def _rows(content: str, encoding: str = "utf-8") -> Callable[[Path], object]:
    return lambda own: (own / "doubles.csv").write_bytes(content.encode(encoding))


@pytest.mark.parametrize(
    ("spoil", "parts"),
    [
        (_set("problems.mine.file", "doubels.csv"),
         ["problems.mine.file: ", "doubels.csv does not"]),
        (_set("problems.mine.file", "rows.txt"),
         ["problems.mine.file: ", "must end in .csv, .jsonl"]),
        (_rows("q,a\n"), ["problems.mine.file: ", "doubles.csv: has no rows"]),
        (_rows("q,a\n1+1,2\n2+2,4,5\n"),
         ["problems.mine.file: ", "line 3 has more fields than line 1"]),
        (_rows("q,a\nWas heißt zwei?,2\n", "latin-1"), ["problems.mine.file: ", "UTF-8"]),
        (_rows("q,a\n1+1,2\n2+2,\n"),
         ["problems.mine.fields.answer: ", "doubles.csv, row 2: no answer under a"]),
        (_twice, ["problems.mine.fields.id: ", "the id 'mine-x', in rows 1 and 2"]),
        (_set("problems.mine.fields", DROPPED),
         ["problems.mine.fields.problem: ", "no column 'problem'; its columns: q, a"]),
        (_set("problems.mine.first", 11), ["problems.mine.first: ", "has 10 problems"]),
        (_set("problems.mine.levels", [3]), ["problems.mine.levels: ", "no level 3"]),
        (_set("problems.mine.hints", True), ["problems.mine.hints: ", "fields.solution"]),
        (_set("models.own.base.folder", "modle"), ["models.own.base.folder: ", "modle does not"]),
        (_no_safetensors,
         ["models.own.base.folder: ", "only pytorch_model.bin", "save_pretrained"]),
        (_with_code, ["models.own.base.folder: ", "auto_map", "never run"]),
        (_no_tokenizer, ["models.own.base.folder: ", "no tokenizer"]),
        (_adapter_alone, ["models.own.base.folder: ", "name it under `adapter`"]),
        (_set("models.own.base.adapter", "model"), ["models.own.base.adapter: ", "not an adapter"]),
        (_adapter_pickled,
         ["models.own.base.adapter: ", "has no adapter_model.safetensors", "can hold code"]),
        (_set("models.own.algorithms", ["grpo"]), ["models.own.rl: missing", "leave algorithms"]),
        (_set("exhibits.accuracy.algorithms", ["grpo"]),
         ["exhibits.accuracy.model: 'own' has no rl"]),
        (_set("exhibits.accuracy.kind", "training"), ["exhibits.accuracy.model: 'own' has no rl"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_before_any_job(
    own: Path, spoil: Callable[[Path], None], parts: list[str]
) -> None:
    spoil(own)
    message = message_of(lambda: load(own))
    assert str(own / "mine.yaml") in message
    assert "(line " in message
    for part in parts:
        assert part in message


class TestHub:
    """The hub is out of reach of tests: a mirror takes its place."""

    def hub_set(self, **more: Any) -> HubSet:
        return HubSet.model_validate(
            {"source": "hub", "title": "", "repository": "me/sums", **more}
        )

    @pytest.fixture
    def mirror(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("SAGE_MIRROR", str(tmp_path))
        monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
        folder = tmp_path / "me/sums"
        folder.mkdir(parents=True)
        for split, rows in {"train": 5, "test": 3}.items():
            lines = [json.dumps({"problem": f"{n}+1", "answer": n + 1}) for n in range(rows)]
            (folder / f"{split}.jsonl").write_text("\n".join(lines))
        return folder

    def test_a_split_of_a_copy_in_the_mirror(self, mirror: Path) -> None:
        assert [p.answer for p in self.hub_set().problems("sums")] == ["1", "2", "3"]
        settings = self.hub_set(split="train", first=4)
        problems = draw_problems("sums", settings.model_dump())
        assert [p.problem for p in problems] == ["0+1", "1+1", "2+1", "3+1"]
        assert problems[0].source == "mirror:me/sums"
        before = settings.sums()
        (mirror / "train.jsonl").write_text('{"problem": "1", "answer": 1}')
        assert settings.sums() != before

    def test_another_split_is_refused_with_those_there_are(self, mirror: Path) -> None:
        with pytest.raises(DataError, match=r"split 'dev' cannot be read.*train.*test") as caught:
            self.hub_set(split="dev").problems("sums")
        assert caught.value.key == "split"

    def test_the_hub_is_asked_for_the_commit_of_a_branch(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def load_dataset(place: str, subset: str | None, split: str, revision: str) -> Dataset:
            assert (place, subset, split, revision) == ("me/sums", "main", "train", "abc")
            return Dataset.from_list([{"q": "1+1", "a": "so 2 #### 2"}])

        info = SimpleNamespace(sha="abc")
        monkeypatch.delenv("SAGE_MIRROR", raising=False)
        monkeypatch.setattr("sage.problems.fetching.silence", lambda: None)
        monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **__: info)
        monkeypatch.setattr("datasets.load_dataset", load_dataset)
        fields = {"problem": "q", "answer": "a"}
        hub = self.hub_set(subset="main", split="train", fields=fields, answer_after="####")
        (problem,) = hub.problems("sums")
        assert (problem.answer, problem.revision, hub.sums()) == ("2", "abc", [])

    def test_without_hub_and_copy_the_way_out_is_said(
        self, mirror: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(DataError, match=r"HF_HUB_OFFLINE is set.*hf download --repo-type"):
            self.hub_set(repository="me/none").problems("sums")


def test_a_folder_with_an_adapter_is_merged(own: Path) -> None:
    import torch
    from peft import LoraConfig, get_peft_model

    trained: Any = get_peft_model(
        load_model(own / "model"), LoraConfig(r=2, target_modules=["q_proj"])
    )
    for name, weight in trained.named_parameters():
        if "lora_B" in name:
            torch.nn.init.constant_(weight, 0.1)
    trained.save_pretrained(own / "adapter")
    base = {"source": "folder", "folder": str(own / "model"), "adapter": str(own / "adapter")}
    fetch_base(base, own / "merged", Manifest({}, 1, 0.0))
    tokens = torch.tensor([[5, 6, 7]])
    merged = load_model(own / "merged")(tokens).logits
    assert torch.allclose(merged, trained(tokens).logits, atol=1e-5)
    assert not torch.allclose(merged, load_model(own / "model")(tokens).logits, atol=1e-5)


class TestNew:
    def write(self, own: Path, *more: str, data: str = "doubles.csv") -> tuple[int, Path]:
        out = own / "new.yaml"
        words = ["--model", str(own / "model"), "--data", str(own / data), "--out", str(out)]
        return new.main([*words, *more]), out

    def test_what_it_writes_loads_also_with_training(self, own: Path) -> None:
        code, out = self.write(own, "--problem", "q", "--answer", "a")
        assert code == 0
        study = load_study(str(out), ROOT / "config")
        assert study.training_sets() == []
        lines = out.read_text().splitlines()
        start = next(n for n, line in enumerate(lines) if "# algorithms" in line)
        text = "\n".join(
            line.replace("# ", "", 1)
            if line.startswith(("  # train", "# seeds", "    # " if n >= start else "# seeds"))
            else line
            for n, line in enumerate(lines)
        )
        out.write_text(text)
        study = load_study(str(out), ROOT / "config")
        assert study.training_sets() == ["train"]
        assert len(study.trained_runs("own")) == 6

    def test_usual_names_of_columns_are_known(self, own: Path) -> None:
        (own / "usual.jsonl").write_text('{"id": 1, "Question": "1+1", "target": "2"}\n')
        code, out = self.write(own, data="usual.jsonl")
        assert code == 0
        fields = yaml.safe_load(out.read_text())["problems"]["own"]["fields"]
        assert fields == {"problem": "Question", "answer": "target"}

    def test_problems_that_are_there_twice_are_counted(
        self, own: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (own / "twice.csv").write_text("problem,answer\n1+1,2\n2+2,4\n1+1,2\n")
        assert self.write(own, data="twice.csv")[0] == 0
        assert "twice.csv: 1 of 3 problems repeat another, such as '1+1'" in capsys.readouterr().err

    def test_names_of_the_hub_are_taken_as_they_are(self, own: Path) -> None:
        out = own / "hub.yaml"
        words = ["--model", "Qwen/Qwen3-8B", "--data", "openai/gsm8k", "--out", str(out)]
        assert new.main(words) == 0
        study = load_study(str(out), ROOT / "config").study
        assert study.models["own"].base.source == "hub"
        assert study.problems["own"].source == "hub"

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({}, "which column is the problem? Its columns: q, a; name it with --problem"),
            ({"data": "none.csv"}, "none.csv does not exist"),
            ({"data": "model"}, "must end in .csv, .jsonl, .parquet"),
        ],
    )
    def test_it_says_what_it_cannot_use(
        self, own: Path, change: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out = self.write(own, **change)
        assert code == 1
        assert said in capsys.readouterr().err
        assert not out.exists()

    def test_it_overwrites_nothing(self, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (own / "new.yaml").write_text("mine")
        assert self.write(own, "--problem", "q", "--answer", "a")[0] == 1
        assert (own / "new.yaml").read_text() == "mine"


@pytest.mark.e2e
@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_a_written_study_runs_to_a_page_and_edits_run_it_again(own: Path, tmp_path: Path) -> None:
    code, _ = TestNew().write(own, "--problem", "q", "--answer", "a")
    assert code == 0
    edit(own / "new.yaml", "evaluation.sampling.max_tokens", 8)
    run = snakemake_in(copy_project(tmp_path / "sage"))
    options = ("--cores", "2", "--config", f"study={own}/new.yaml", f"results={tmp_path}", "--")

    assert (done := run(*options)).returncode == 0, done.stdout
    page = (tmp_path / "new/report/index.html").read_text(encoding="utf-8")
    assert "model on doubles" in page
    assert "pass@8" in page
    assert "Training runs" not in page
    table = pd.read_csv(tmp_path / "new/report/tables/accuracy.csv")
    assert table["algorithm"].tolist() == ["base"]
    assert "Nothing to be done" in run("-n", *options).stdout
    for target in ("plan", "check", "registered", "verify"):
        assert (done := run(*options, target)).returncode == 0, done.stdout

    own_things.write_doubles(own, rows=9)
    assert "job problems/own: data files changed" in run(*options, "verify").stdout
    planned = run("-n", *options).stdout
    assert "rule sample" in planned
    assert "rule fetch" not in planned
    tokenizer = own / "model/tokenizer_config.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    assert "rule fetch" in run("-n", *options).stdout
