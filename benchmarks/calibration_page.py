"""The tables of `benchmarks.calibration`, as its JSON file and in `docs/statistics.md`.

`python -m benchmarks.calibration_page` writes the page's tables from the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.worlds import ROOT
from sage.runtime.files import write_text_atomic

RESULTS, PAGE = ROOT / "benchmarks/calibration.json", ROOT / "docs/statistics.md"
START, END = "<!-- {}, from benchmarks/calibration.json -->", "<!-- end of table -->"
"""What stands around a table of the page."""
BY_RUNS = {
    "no difference": (["methods"], "{no difference:.3f} ({means alone:.3f})"),
    "power": (["claim", "points"], "{right:.3f}"),
    "least effect": (["claim"], "{points:.1f}"),
    "two states": (["of"], "{covered:.3f} ({named:.2f}; {over all:.2f})"),
}
"""Of a table with a column for each number of runs, the keys of its rows and a cell."""
Record = dict[str, Any]


def json_by_row(content: Mapping[str, Any]) -> str:
    """The content as JSON, each record of a table in one line."""
    lines = {
        name: "[\n" + ",\n".join(f"   {json.dumps(record)}" for record in records) + "\n  ]"
        for name, records in content["tables"].items()
    }
    head = json.dumps({key: value for key, value in content.items() if key != "tables"}, indent=1)
    body = ",\n".join(f"  {json.dumps(name)}: {text}" for name, text in lines.items())
    return head.removesuffix("\n}") + ',\n "tables": {\n' + body + "\n }\n}\n"


def markdown(tables: Mapping[str, list[Record]]) -> dict[str, str]:
    """The tables of the page by name."""
    summed = {"false verdicts": _highest, "coverage": _covered}
    return {
        name: summed[name](rows) if name in summed else _by_runs(rows, *BY_RUNS[name])
        for name, rows in tables.items()
    }


def _by_runs(rows: list[Record], keys: Sequence[str], cell: str) -> str:
    """A column for each number of runs; – where not measured. `right` are verdicts that say which
    way an effect goes."""
    runs = sorted({row["runs"] for row in rows})
    cells: dict[tuple[str, ...], dict[int, str]] = {}
    for row in rows:
        right = row.get("contradicted" if row.get("points", 0) < 0 else "supported")
        text = cell.format_map(row | {"right": right})
        cells.setdefault(tuple(str(row[key]) for key in keys), {})[row["runs"]] = text
    body = [[*key, *(own.get(n, "–") for n in runs)] for key, own in cells.items()]
    return table_of([*keys, *(f"{n} run{'s' * (n > 1)}" for n in runs)], body)


def _highest(rows: list[Record]) -> str:
    """Of each world the highest share of false verdicts of a claim, and those of any claim."""
    body = []
    for world in dict.fromkeys(row["world"] for row in rows):
        here = [row for row in rows if row["world"] == world]
        shares = [row["false"] for row in here if row["claim"] == "any"]
        one = max((row for row in here if row["claim"] != "any"), key=lambda row: row["false"])
        highest = f"{one['false']:.3f} (`{one['claim']}`, {one['runs']} runs)"
        between = " to ".join(f"{share:.3f}" for share in dict.fromkeys([min(shares), max(shares)]))
        body.append([world, f"{one['studies']:,}", highest, between])
    return table_of(["world", "studies", "highest of a claim", "any claim"], body)


def _covered(rows: list[Record]) -> str:
    """Of each kind of difference the lowest and the highest coverage, over numbers of runs."""
    shares: dict[str, list[float]] = {}
    for row in rows:
        shares.setdefault(row["of"], []).append(row["covered"])
    body = [[of, f"{min(all_of):.3f} to {max(all_of):.3f}"] for of, all_of in shares.items()]
    return table_of(["of", "coverage"], body)


def table_of(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *body)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def page_with(text: str, tables: Mapping[str, list[Record]]) -> str:
    """The page's text with each table in its place."""
    for name, table in markdown(tables).items():
        start, _, rest = text.partition(START.format(name))
        text = f"{start}{START.format(name)}\n\n{table}\n\n{END}{rest.partition(END)[2]}"
    return text


if __name__ == "__main__":
    kept_tables = json.loads(RESULTS.read_text(encoding="utf-8"))["tables"]
    write_text_atomic(PAGE, page_with(PAGE.read_text(encoding="utf-8"), kept_tables))
