"""Tables as written: LaTeX that compiles, files that read back, captions that are valid."""

import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from docutils.core import publish_parts
from pages import a_problem, sample_rows
from report_frames import COMPARISONS, METRICS, ROOT, a_study, pass_at_k, retitled
from table_frames import MeasuredFrames, accuracies

from sage.evaluation.chance import chance_table
from sage.evaluation.counts import counts_table
from sage.evaluation.metrics import rates_table
from sage.evaluation.support import support_table
from sage.exhibits import EVERY_REPORT, PAPER, tables_of, write_piece
from sage.exhibits.perplexity_of_responses import tail_table
from sage.problems.contamination import contamination
from sage.rendering.documents import escape, latex_table, read_document, write_document
from sage.rendering.table import Cell, Group, Head, Row, Table, TableDocument
from sage.study import ResolvedStudy


def test_text_is_escaped_for_latex() -> None:
    assert escape(r"50 % & {a_1} \x ~^<>") == (
        r"50 \% \& \{a\_1\} \textbackslash{}x \textasciitilde{}\textasciicircum{}"
        r"\textless{}\textgreater{}"
    )


CASE = Table(
    "Name_1",
    (Head("A & B", ("x", "y")), Head("", ("50 %",))),
    (
        Group(
            "First {group}",
            (
                Row("Base", (Cell("1.0", "0.5–1.5"), Cell("–", mark="nil"), Cell("a")), base=True),
                Row("Ours", (Cell("2.0", mark="best"), Cell("3.0", "± 0.1", "tie"), Cell("b"))),
            ),
        ),
        Group("Second", (Row("Ours", (Cell("−1.0", mark="own"), Cell(""), Cell("c_d"))),)),
    ),
)


def test_one_renderer_lays_out_heads_groups_marks_and_what_stands_beneath() -> None:
    assert (
        latex_table(CASE, "50 % of A_1")
        == r"""\begin{table}
\centering\small
\setlength{\tabcolsep}{4pt}
\caption{50 \% of A\_1}
\begin{tabular}{@{}lccc@{}}
\toprule
 & \multicolumn{2}{c}{A \& B} & \multicolumn{1}{c}{} \\
\cmidrule(lr){2-3}
Name\_1 & x & y & 50 \% \\
\midrule
\multicolumn{4}{l}{\emph{First \{group\}}} \\
Base & 1.0 & -- & a \\[-2pt]
 & {\scriptsize 0.5--1.5} &  &  \\[3pt]
\addlinespace
Ours & \textbf{2.0} & 3.0\rlap{$^{\approx}$} & b \\[-2pt]
 &  & {\scriptsize $\pm$ 0.1} &  \\[3pt]
\addlinespace
\multicolumn{4}{l}{\emph{Second}} \\
Ours & \underline{$-$1.0} &  & c\_d \\
\bottomrule
\end{tabular}
\end{table}
"""
    )


@pytest.mark.parametrize("title", ["[1] GRPO", "*GRPO"])
def test_the_end_of_a_row_takes_nothing_of_the_next_title(title: str) -> None:
    rows = tuple(Row(title, (Cell("≥ 1"),)) for _ in range(2))
    table = Table("Name", (Head("", ("x",)),), (Group("", rows),))
    assert f"\\\\\n{{}}{title} & $\\ge$ 1 " in latex_table(table, "")


def test_columns_of_words_may_break_their_lines() -> None:
    table = Table("S", (Head("", ("a", "b")),), (Group("", (Row("r", (Cell("x"),) * 2),)),), True)
    assert latex_table(table, "").count(r">{\raggedright\arraybackslash}p{0.31\linewidth}") == 2


def test_the_page_reads_back_what_was_written(tmp_path: Path) -> None:
    for table in (CASE, accuracies().table):
        frame = pd.DataFrame({"x": [0.1]})
        written = TableDocument(frame, table, "≈ 50 %", summary="More", flat="Easy")
        write_document(written, tmp_path / "t.csv")
        read = read_document(tmp_path / "t.json")
        assert (read.table, read.caption) == (table, "≈ 50 %")
        assert (read.summary, read.flat) == ("More", "Easy")


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", '{"table": {"first": "x"}}', '{"table": 1'])
def test_a_file_that_is_no_table_is_an_error_that_names_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(ValueError, match=r"t\.json: not a table written by this project .* delete"):
        read_document(tmp_path / "t.json")


def write_frames(folder: Path, **frames: pd.DataFrame) -> None:
    for name, frame in frames.items():
        frame.to_parquet(folder / f"{name}.parquet")


def write_every_table(study: ResolvedStudy, folder: Path) -> list[Path]:
    """The tables of every exhibit of the study and of every report, the paper's among them."""
    measures = MeasuredFrames()
    measured = pass_at_k(METRICS)
    cell = measured[measured["algorithm"] == "branch"]
    cell = cell.assign(algorithm="branch-threshold0.8-ratio0.3")
    measured = pd.concat([measured, cell], ignore_index=True)
    problems = [a_problem("p1")]
    samples = {("tiny", row, 1, "easy"): sample_rows() for row in ("base", "grpo", "branch")}
    counts = counts_table(samples, [a_problem(f"p{i}") for i in range(3)])
    write_frames(
        folder,
        pass_at_k=measured,
        comparisons=COMPARISONS,
        paper_reading=measures.READ,
        patterns=measures.PATTERNS,
        stages=measures.GRADIENTS,
        tails=tail_table(measures.PERPLEXITIES),
        rates=rates_table(samples),
        support=support_table(counts, 100),
        chance=chance_table(counts, 100),
        contamination=contamination({"train": problems}, {"easy": problems}, 13, 0.5)[0],
    )
    (folder / "mapping.yaml").write_text("tiny: [{file: theirs.csv, kind: accuracy, seeds: 5}]")
    (folder / "theirs.csv").write_text(
        "benchmark,algorithm,quantity,value,std\neasy,grpo,pass@1,0.7,0.02\n"
    )
    written = []
    for exhibit in (*study.study.exhibits, *EVERY_REPORT):
        paper = folder if exhibit == "table1" else None
        for name, suffix in tables_of(study, exhibit, paper).items():
            written.append(folder / f"{name}.csv")
            write_piece(study, exhibit, suffix, [folder], folder, written[-1])
    return written


def test_every_exhibit_has_its_tables_beside_each_other(tmp_path: Path) -> None:
    written = write_every_table(a_study(), tmp_path)
    assert {path.stem for path in written} == {
        *("table1", "table1_reading", f"table1{PAPER}", "table2", "table5", "table6"),
        *("table9", "table9_reading", "figure7", "appendix_c", "table7", "table8"),
        *("estimators", "readings", "contamination", "chance", "grading", "support"),
    }
    for path in written:
        assert len(pd.read_csv(path)) > 0
        assert read_document(path.with_suffix(".json")).table.columns > 0
        latex = path.with_suffix(".tex").read_text()
        assert r"\bottomrule" in latex
        assert latex.isascii()  # LaTeX knows few other characters without further packages
    theirs = (tmp_path / f"table1{PAPER}.tex").read_text()
    # The paper's, ours by its estimator, the difference.
    assert r"GRPO & 70.0 & 55.0 & $-$15.0 &" in theirs


def test_every_table_compiles(tmp_path: Path) -> None:
    tool = shutil.which("pdflatex")
    if tool is None:
        pytest.skip("pdflatex is not installed")
    title = r"[A]_1 & 50% \x ~^ <{$#}> | ≈ ±"
    study = retitled(a_study(title="A_1"), grpo=title)
    tables = [path.with_suffix(".tex") for path in write_every_table(study, tmp_path)]
    texts = [path.read_text(encoding="utf-8") for path in tables]
    assert escape(title) in texts[0]
    packages = r"\documentclass{article}\usepackage{booktabs,array}\begin{document}"
    text = "\n\\clearpage\n".join([packages, *texts, latex_table(CASE, title), r"\end{document}"])
    (tmp_path / "tables.tex").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [tool, "-interaction=nonstopmode", "-halt-on-error", "tables.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Missing character" not in (tmp_path / "tables.log").read_text(errors="replace")


def assert_valid(caption: str) -> None:
    """The caption is reStructuredText without a fault."""
    body = publish_parts(caption, writer="html", settings_overrides={"halt_level": 2})["body"]
    assert "<p>" in body
    assert "{" not in body


def test_captions_are_valid() -> None:
    names = {path.stem for path in (ROOT / "reports/captions").glob("*.rst")}
    assert {"claims", "page"} <= names
    for name in names:
        assert_valid((ROOT / f"reports/captions/{name}.rst").read_text())
