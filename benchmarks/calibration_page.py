"""The tables of `benchmarks.calibration`, as its JSON file and in `docs/statistics.md`.

`python -m benchmarks.calibration_page` writes the page's tables from the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.worlds import ROOT
from sage.runtime.files import write_text_atomic

RESULTS, PAGE = ROOT / "benchmarks/calibration.json", ROOT / "docs/statistics.md"
START, END = "<!-- {}, from benchmarks/calibration.json -->", "<!-- end of table -->"
"""What stands around a table of the page."""
Record = dict[str, Any]


def json_by_row(content: Mapping[str, Any]) -> str:
    """The content as JSON, each record of a table in one line."""
    tables = content["tables"]
    lines = {
        name: "[\n" + ",\n".join(f"   {json.dumps(record)}" for record in records) + "\n  ]"
        for name, records in tables.items()
    }
    head = json.dumps({key: value for key, value in content.items() if key != "tables"}, indent=1)
    body = ",\n".join(f"  {json.dumps(name)}: {text}" for name, text in lines.items())
    return head.removesuffix("\n}") + ',\n "tables": {\n' + body + "\n }\n}\n"


def markdown(tables: Mapping[str, list[Record]]) -> dict[str, str]:
    """The tables of the page by name, a column for each number of runs; – where not measured."""
    runs = {name: sorted({row["runs"] for row in rows}) for name, rows in tables.items()}
    columns = {
        "no difference": (["methods"], "no difference"),
        "power": (["claim", "points"], "right"),
        "least effect": (["claim"], "points"),
        "two states": (["of"], "covered"),
    }
    pages = {}
    for name, rows in tables.items():
        if name in ("false verdicts", "coverage"):
            pages[name] = (_covered if name == "coverage" else _highest)(rows)
            continue
        keys, value = columns[name]
        cells: dict[tuple[str, ...], dict[int, str]] = {}
        for row in rows:
            number = _right(row) if value == "right" else row[value]
            text = f"{number:.1f}" if value == "points" else f"{number:.3f}"
            if "means alone" in row:
                text += f" ({row['means alone']:.3f})"
            if "named" in row:
                text += f" ({row['named']:.2f}; {row['over all']:.2f})"
            cells.setdefault(tuple(str(row[key]) for key in keys), {})[row["runs"]] = text
        head = [*keys, *(f"{n} run{'s' * (n > 1)}" for n in runs[name])]
        lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        for key, by_runs in cells.items():
            texts = [by_runs.get(n, "–") for n in runs[name]]
            lines.append("| " + " | ".join([*key, *texts]) + " |")
        pages[name] = "\n".join(lines)
    return pages


def _highest(rows: list[Record]) -> str:
    """Of each world the highest share of false verdicts of a claim, and those of any claim."""
    lines = ["| world | studies | highest of a claim | any claim |", "|---|---|---|---|"]
    for world in dict.fromkeys(row["world"] for row in rows):
        here = [row for row in rows if row["world"] == world]
        shares = [row["false"] for row in here if row["claim"] == "any"]
        one = max((row for row in here if row["claim"] != "any"), key=lambda row: row["false"])
        highest = f"{one['false']:.3f} (`{one['claim']}`, {one['runs']} runs)"
        between = " to ".join(f"{share:.3f}" for share in dict.fromkeys([min(shares), max(shares)]))
        lines.append(f"| {world} | {one['studies']:,} | {highest} | {between} |")
    return "\n".join(lines)


def _covered(rows: list[Record]) -> str:
    """Of each kind of difference the lowest and the highest coverage, over numbers of runs."""
    lines = ["| of | coverage |", "|---|---|"]
    for of in dict.fromkeys(row["of"] for row in rows):
        shares = [row["covered"] for row in rows if row["of"] == of]
        lines.append(f"| {of} | {min(shares):.3f} to {max(shares):.3f} |")
    return "\n".join(lines)


def _right(row: Mapping[str, Any]) -> float:
    """The share of verdicts that say which way an effect goes."""
    return float(row["contradicted" if row["points"] < 0 else "supported"])


def page_with(text: str, tables: Mapping[str, list[Record]]) -> str:
    """The page's text with each table in its place."""
    for name, table in markdown(tables).items():
        start, _, rest = text.partition(START.format(name))
        text = f"{start}{START.format(name)}\n\n{table}\n\n{END}{rest.partition(END)[2]}"
    return text


if __name__ == "__main__":
    kept_tables = json.loads(RESULTS.read_text(encoding="utf-8"))["tables"]
    write_text_atomic(PAGE, page_with(PAGE.read_text(encoding="utf-8"), kept_tables))
