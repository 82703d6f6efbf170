"""Two studies on one page: settings that differ, then differences with intervals."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pages import Markings, parsed, words_of
from report_frames import ROOT

from sage.problems.record import Problem, write_problems
from sage.report.two_studies import differences, write_comparison
from sage.results import Results, Run
from sage.tools import command


def counts(share: float, seeds: tuple[int, ...] = (1, 2, 3), problems: int = 40) -> pd.DataFrame:
    """Counts of the base and of GRPO; GRPO solves `share` of 8 samples, more or less."""
    draw = np.random.default_rng(0)
    rows = [
        ("tiny", name, seed, "easy", f"p{problem}", 8, int(draw.binomial(8, rate)))
        for name, runs, rate in (("base", (0,), 0.3), ("grpo", seeds, share))
        for seed in runs
        for problem in range(problems)
    ]
    columns = ["model", "algorithm", "train_seed", "benchmark", "problem_id", "n_samples"]
    frame = pd.DataFrame(rows, columns=[*columns, "correct"])
    return frame.assign(cluster="", stratum="", worked=np.nan, chance=[[np.nan] * 4] * len(frame))


def a_folder(folder: Path, frame: pd.DataFrame, steps: int) -> Path:
    results = Results(folder)
    path = results.metrics("counts")
    path.parent.mkdir(parents=True)
    frame.to_parquet(path)
    for seed in (1, 2):
        manifest = results.policy(Run("tiny", "grpo", seed)) / "manifest.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"settings": {"rl": {"steps": steps, "beta": 0.1}}}))
    left_by_a_kill = manifest.parent.with_name(".seed9.7-x") / "manifest.json"
    left_by_a_kill.parent.mkdir()
    left_by_a_kill.write_text('{"half')
    return folder


class TestDifferences:
    def test_a_method_is_compared_with_itself_second_minus_first(self) -> None:
        table = differences(counts(0.3), counts(0.7), draws=1000).set_index(["algorithm", "k"])
        assert list(table.index) == [("base", 1), ("base", 8), ("grpo", 1), ("grpo", 8)]
        grpo = table.loc[("grpo", 1)]
        assert grpo["value"] == pytest.approx(grpo["second"] - grpo["first"])
        assert grpo["low"] > 0.25
        assert grpo["p_holm"] < 0.05
        assert table.loc[("base", 1), "value"] == 0  # the same samples

    def test_pass_at_1_is_the_share_of_correct_samples(self) -> None:
        one = counts(0.3)
        share = one.loc[one["algorithm"] == "grpo", "correct"].mean() / 8
        table = differences(one, counts(0.7), draws=1000)
        grpo = table[(table["algorithm"] == "grpo") & (table["k"] == 1)]
        assert grpo["first"].item() == pytest.approx(share)

    def test_runs_of_other_seeds_are_compared_in_order(self) -> None:
        table = differences(counts(0.3), counts(0.7, seeds=(7, 8)), draws=1000)
        assert table.loc[table["algorithm"] == "grpo", "n_seeds"].tolist() == [2, 2]

    def test_other_problems_are_not_compared(self) -> None:
        with pytest.raises(ValueError, match="share no method"):
            differences(counts(0.3), counts(0.7, problems=30), draws=1000)


def test_the_page_names_settings_and_numbers(tmp_path: Path) -> None:
    one, two = (
        a_folder(tmp_path / name, counts(share), steps)
        for name, share, steps in (("short", 0.3, 100), ("longer", 0.7, 300))
    )
    target = tmp_path / "page.html"
    sentence = write_comparison(one, two, target, ROOT / "reports", draws=1000)
    assert re.fullmatch(
        r"pass@1 of grpo on easy is \d\d\.\d % in longer and \d\d\.\d % in short "
        r"\(\+\d\d\.\d points, 95 % interval .*\), the largest difference that is clear among 4\.",
        sentence,
    )
    same = write_comparison(one, one, target.with_name("same.html"), ROOT / "reports", draws=1000)
    assert same.startswith("No difference between short and short is clear. The largest may be ")
    page = target.read_text()
    assert Markings(page).values("src") == []
    assert "://" not in page
    tree = parsed(page)
    (change,) = tree.findall(".//ul[@class='changes']/li")
    assert words_of(change) == "rl.steps 100 → 300 2 jobs"
    forests = tree.findall(".//table[@class='forest']")
    assert [words_of(forest.find("tbody/tr/th")) for forest in forests] == ["Base easy"] * 2
    assert "GRPO" not in page  # no study of these names: there are no titles
    rows = tree.findall(".//table[@id='table-numbers']/tbody/tr")
    assert len(rows) == 1 + 4  # a heading, then two methods at two k


def test_problems_of_the_same_number_and_another_text_are_left_out(tmp_path: Path) -> None:
    """What is made is only numbered: `p0` of another seed is another problem."""
    folders = []
    for name, shift in (("mine", 0), ("other", 5)):
        easy = counts(0.3)
        folder = a_folder(tmp_path / name, pd.concat([easy, easy.assign(benchmark="same")]), 100)
        for benchmark, added in (("easy", shift), ("same", 0)):
            made = [
                Problem(f"p{i}", f"{i}+{added}", str(i + added), "math", "", "made", "0")
                for i in range(40)
            ]
            file = Results(folder).problems(benchmark)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_problems(made, file)
        folders.append(folder)
    target = tmp_path / "page.html"
    sentence = write_comparison(*folders, target, ROOT / "reports", draws=200)
    assert sentence.startswith("No difference between mine and other is clear. The largest may be ")
    assert "among 4" in sentence
    left = [
        words_of(line)
        for line in parsed(target.read_text()).findall(".//section[@id='numbers']//span")
    ]
    assert {"tiny / Base / easy", "tiny / grpo / easy"} <= set(left)


def test_methods_models_and_benchmarks_have_their_titles(tmp_path: Path) -> None:
    """Those of the study that the results are of, with settings on the command line or without."""
    named = [
        counts(share).assign(model="sums", benchmark="sheets").replace("grpo", "grpo_branch")
        for share in (0.3, 0.7)
    ]
    more = named[0].assign(benchmark="seen")
    one = a_folder(tmp_path / "mini", pd.concat([named[0], more]), 100)
    two = a_folder(tmp_path / "mini-rl.steps-300", named[1], 300)
    target = tmp_path / "page.html"
    sentence = write_comparison(one, two, target, ROOT / "reports", draws=1000)
    assert sentence.startswith("pass@1 of GRPO + Branch on Sheets (all six strata) is ")
    tree = parsed(target.read_text())
    row = tree.find(".//table[@class='forest'][1]/tbody/tr[2]/th")
    assert words_of(row) == "GRPO + Branch Sheets (all six strata)"
    group = words_of(tree.find(".//table[@id='table-numbers']/tbody/tr"))
    assert group == "Sheets of sums (0.17 M), Sheets (all six strata)"
    left = [words_of(line) for line in tree.findall(".//section[@id='numbers']//span")]
    assert "Sheets of sums (0.17 M) / GRPO + Branch / Sheets like those of RL" in left


def test_the_command_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = str(tmp_path / "page.html")
    assert command.main(["compare", str(tmp_path), "nothing", "--html", page]) == 1
    assert "run the study here first, sage-rlvr run" in capsys.readouterr().err
