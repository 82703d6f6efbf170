"""The paper's numbers beside measured ones, for models that are the paper's own.

The tables are CSV files in `reports/paper`, and `mapping.yaml` there says which of them belong
to which model and benchmark. Both were measured on the same problems, so the interval of a
difference is not over problems: it is of the noise of evaluating, from the standard deviations over
evaluation seeds (Welch's t), where both have them. How training runs differ is in neither, for the
paper has one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator
from scipy.stats import t

from sage.study import ResolvedStudy
from sage.study.exhibits import AblationTable
from sage.study.strict import Name, Strict

COLUMNS = ["kind", "model", "benchmark", "algorithm", "quantity", "value", "std", "seeds"]
"""`quantity` is ``pass@k`` with its k, the name of a pattern or a stage of training; `algorithm`
the row, for an ablation the one of the cell. `benchmark` is empty where there is none, `std` is
over as many evaluation `seeds`."""

COMPARED = [*COLUMNS, "measured", "measured_std", "difference", "low", "high", "inside"]
"""COLUMNS, the measured value with its own deviation over evaluation seeds, and the difference to
the paper's with its 95 % interval; `inside` says whether that holds nought."""


class PaperTable(Strict):
    """One table of the paper and what it is about."""

    file: Annotated[str, Field(pattern=r"^\w+\.csv$")]
    kind: Literal["accuracy", "patterns", "gradient_norms", "ablation"]
    seeds: Annotated[int, Field(ge=2)] | None = None
    benchmark: Name | None = None
    benchmarks: dict[str, Name] | None = None

    @model_validator(mode="after")
    def _about_one_thing(self) -> PaperTable:
        if self.benchmark and self.benchmarks:
            raise ValueError(f"{self.file}: give either benchmark or benchmarks")
        return self


_MAPPING = TypeAdapter(dict[Name, list[PaperTable]])


def read_mapping(folder: Path) -> dict[str, list[PaperTable]]:
    """`mapping.yaml` of a folder; raises ValueError naming the file and what is wrong in it."""
    path = folder / "mapping.yaml"
    try:
        return _MAPPING.validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        raise ValueError(f"{path}: {error}") from error


def paper_values(folder: Path, study: ResolvedStudy) -> pd.DataFrame:
    """The paper's numbers for the study's models, with COLUMNS; no rows for other studies.

    Raises ValueError for a faulty mapping and FileNotFoundError for a table that it names.
    """
    mapping = read_mapping(folder)
    tables = [
        _values(pd.read_csv(folder / table.file), table, model, study)
        for model in study.study.models
        for table in mapping.get(model, ())
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=COLUMNS)


def compared(paper: pd.DataFrame, measured: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """Rows of `paper` (COLUMNS) that `measured` knows as well, with COMPARED.

    `measured` has the columns `on` and value, and may have measured_std over measured_seeds
    evaluation seeds; shares in [0, 1]. Where either side has no deviation the interval is NaN and
    `inside` None.
    """
    both = paper.merge(measured.rename(columns={"value": "measured"}), on=list(on), how="inner")
    both = both.dropna(subset=["measured"])
    difference = both["measured"] - both["value"]
    for name in ("std", "seeds", "measured_std", "measured_seeds"):
        both[name] = both[name].astype(float) if name in both else math.nan
    seeds, own_seeds = both["seeds"], both["measured_seeds"]
    noise, own_noise = both["std"] ** 2 / seeds, both["measured_std"] ** 2 / own_seeds
    variance = noise + own_noise
    degrees = variance**2 / (noise**2 / (seeds - 1) + own_noise**2 / (own_seeds - 1))
    half = np.sqrt(variance) * t.ppf(0.975, degrees)
    both["difference"], both["low"], both["high"] = difference, difference - half, difference + half
    holds = ((both["low"] <= 0) & (both["high"] >= 0)).astype(object)
    both["inside"] = holds.where(half.notna(), None)
    return both[COMPARED]


def _values(
    frame: pd.DataFrame, table: PaperTable, model: str, study: ResolvedStudy
) -> pd.DataFrame:
    if table.kind == "accuracy":
        named = frame.rename(columns={"metric": "quantity", "mean": "value"})
        found = pd.Series(table.benchmark or "", index=named.index)
        if table.benchmarks:
            found = named["benchmark"].map(table.benchmarks)
        named = named.assign(benchmark=found).dropna(subset=["benchmark"])
    elif table.kind == "patterns":
        named = frame.rename(columns={"pattern": "quantity", "frequency": "value"})
    elif table.kind == "gradient_norms":
        named = frame.melt("algorithm", var_name="quantity", value_name="value")
    else:
        named = _of_cells(frame, model, study)
    fixed = {"kind": table.kind, "model": model, "seeds": table.seeds}
    if table.kind != "accuracy":
        fixed["benchmark"] = table.benchmark or ""
    return named.assign(**fixed).reindex(columns=COLUMNS)


def _of_cells(frame: pd.DataFrame, model: str, study: ResolvedStudy) -> pd.DataFrame:
    """An ablation's grid with a row per cell and k; without such an exhibit, no rows."""
    keys = [name for name in frame.columns if not name.startswith("pass@")]
    long = frame.melt(keys, var_name="quantity", value_name="value")
    for shown in study.exhibits(model).values():
        if isinstance(shown, AblationTable) and set(shown.grid) == set(keys):
            cells = long[list(shown.grid)].to_dict("records")
            rows = [study.cell_row(shown, {str(k): float(v) for k, v in c.items()}) for c in cells]
            return long.assign(algorithm=rows)
    return long.assign(algorithm="").iloc[:0]
