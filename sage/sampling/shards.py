"""Drawn completions on disk, shard by shard, so that nothing is drawn twice.

A shard holds consecutive samples of up to 32 problems under one evaluation seed. It is
written whole, with the settings that made it inside, and found again only under the same
settings and for the same prompts: a killed job goes on behind its last shard, and asking
later for more samples, seeds or problems draws what is missing. Nothing here is ever deleted
but the half-written files of a killed job; a user may delete any of it at the price of
drawing it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sage.runtime.files import atomic_file, write_json_atomic
from sage.runtime.identity import digest
from sage.runtime.tables import read_frame
from sage.sampling.interface import Completion

KEY = ["problem_id", "eval_seed", "sample_index"]
COLUMNS = pa.schema(
    [
        ("problem_id", pa.string()),
        ("eval_seed", pa.int64()),
        ("sample_index", pa.int64()),
        ("completion", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("n_tokens", pa.int64()),
        ("finish_reason", pa.string()),
    ]
)
"""Columns of a shard: those of a file of samples, less what grading adds."""

_CHUNK = 32  # problems; it does not follow the settings, or more samples would find nothing
_METADATA = b"sage"

Sample = tuple[str, int, int]
"""problem_id, evaluation seed, index of the sample."""

Draw = Callable[[Sequence[Sample]], Sequence[Completion]]


class Shard(NamedTuple):
    """Samples `first` to `last` - 1 of some problems under an evaluation seed."""

    problems: str
    eval_seed: int
    first: int
    last: int

    @property
    def file(self) -> str:
        """Its name on disk."""
        return f"{self.problems}-eval{self.eval_seed}-{self.first:06d}-{self.last:06d}.parquet"


class Shards:
    """The shards of one policy on one benchmark, made with `settings`.

    `prompts` are the token ids of each problem's prompt. The shards lie in a folder of
    `folder` named after the settings, which are written there as `settings.json`.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], prompts: Mapping[str, tuple[int, ...]]
    ) -> None:
        self._settings = dict(settings)
        self._folder = Path(folder) / digest(self._settings)[:16]
        ids = list(prompts)
        chunks = [ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK)]
        self._chunks = {digest([(i, prompts[i]) for i in chunk])[:12]: chunk for chunk in chunks}

    def missing(self, seeds: Sequence[int], samples: int, size: int) -> list[Shard]:
        """Shards of about `size` completions that hold what is not on disk yet."""
        wanted = []
        for name, problems in self._chunks.items():
            block = max(1, size // len(problems))
            for seed in seeds:
                on_disk = {i for s in self._on_disk(name, seed) for i in range(s.first, s.last)}
                for start in range(0, samples, block):
                    absent = [
                        index
                        for index in range(start, min(start + block, samples))
                        if index not in on_disk
                    ]
                    for _, run in groupby(enumerate(absent), key=lambda at: at[1] - at[0]):
                        indices = [index for _, index in run]
                        wanted.append(Shard(name, seed, indices[0], indices[-1] + 1))
        return wanted

    def draw(self, shards: Sequence[Shard], draw: Draw) -> None:
        """Draw the given shards one after the other, each on disk before the next begins."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for left_by_a_kill in self._folder.glob(".*.parquet"):
            left_by_a_kill.unlink()
        write_json_atomic(self._folder / "settings.json", self._settings)
        for number, shard in enumerate(shards, start=1):
            print(f"shard {number} of {len(shards)}: {shard.file}", flush=True)
            indices = range(shard.first, shard.last)
            problems = self._chunks[shard.problems]
            keys = [(problem, shard.eval_seed, index) for problem in problems for index in indices]
            rows = [
                (*key, one.text, one.token_ids, one.n_tokens, one.finish_reason)
                for key, one in zip(keys, draw(keys), strict=True)
            ]
            columns = [list(column) for column in zip(*rows, strict=True)]
            schema = COLUMNS.with_metadata({_METADATA: self._stamp(shard.problems)})
            with atomic_file(self._folder / shard.file) as temporary:
                pq.write_table(
                    pa.table(columns, schema=schema),
                    temporary,
                    compression="zstd",
                    write_page_checksum=True,
                )

    def chunks(self, seeds: Sequence[int], samples: int) -> Iterator[pd.DataFrame]:
        """What is on disk, some problems at a time, with COLUMNS, in the order of the problems.

        Raises FileNotFoundError where samples are missing.
        """
        for name, problems in self._chunks.items():
            tables = [
                read_frame(self._folder / shard.file)
                for seed in seeds
                for shard in self._on_disk(name, seed)
                if shard.first < samples
            ]
            frame = pd.concat(tables) if tables else COLUMNS.empty_table().to_pandas()
            frame = frame[frame["sample_index"] < samples].drop_duplicates(KEY)
            if len(frame) != len(problems) * len(seeds) * samples:
                raise FileNotFoundError(f"{self._folder}: samples of {problems[0]!r}… are missing")
            places = {problem: place for place, problem in enumerate(problems)}
            yield frame.sort_values(
                KEY,
                ignore_index=True,
                key=lambda column: column.map(places) if column.name == KEY[0] else column,
            )

    def _on_disk(self, problems: str, seed: int) -> list[Shard]:
        """Shards on disk, in order; a file that is not what its name says counts as none."""
        shards = []
        for path in sorted(self._folder.glob(f"{problems}-eval{seed}-*.parquet")):
            first, last = map(int, path.stem.split("-")[-2:])
            if self._is_ours(path, problems):
                shards.append(Shard(problems, seed, first, last))
            else:
                print(f"{path}: broken or made with other settings; its samples are drawn again")
        return shards

    def _is_ours(self, path: Path, problems: str) -> bool:
        try:
            metadata = pq.read_schema(path).metadata or {}
        except (OSError, pa.ArrowException):
            return False
        return metadata.get(_METADATA) == self._stamp(problems)

    def _stamp(self, problems: str) -> bytes:
        return json.dumps({**self._settings, "problems": problems}, sort_keys=True).encode()
