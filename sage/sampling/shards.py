"""Drawn completions on disk, shard by shard, so that nothing is drawn twice.

A shard holds consecutive samples of up to 16 problems under one evaluation seed, and small ones
are drawn together. What is drawn of a sample depends on neither (`sage.sampling.interface`). It is
written whole, with the settings that made it inside, and found again only under the same
settings and for the same prompts: a killed job goes on behind its last shard, and asking
later for more samples, seeds or problems draws what is missing. Nothing here is ever deleted
but the half-written files of a killed job; a user may delete any of it at the price of
drawing it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, islice
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

_CHUNK = 16
"""Problems of a shard. It does not follow the settings, or more samples would find nothing. Few of
them have room for more samples each, which share a row of the decoder until they differ."""

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

    def missing(self, seeds: Sequence[int], samples: int, size: int) -> list[list[Shard]]:
        """Shards that hold what is not on disk yet, as they are drawn together: at most `size`
        completions, or one shard of about so many."""
        wanted: list[list[Shard]] = []
        room = 0
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
                        count = len(indices) * len(problems)
                        if count > room:
                            wanted.append([])
                            room = size
                        wanted[-1].append(Shard(name, seed, indices[0], indices[-1] + 1))
                        room -= count
        return wanted

    def draw(self, shards: Sequence[Sequence[Shard]], draw: Draw) -> None:
        """Draw the given shards, some at a time, all on disk before the next begin."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for left_by_a_kill in self._folder.glob(".*.parquet"):
            left_by_a_kill.unlink()
        write_json_atomic(self._folder / "settings.json", self._settings)
        for number, together in enumerate(shards, start=1):
            keys = [key for shard in together for key in self._samples(shard)]
            print(f"part {number} of {len(shards)}: {len(keys)} completions", flush=True)
            drawn = iter(draw(keys))
            for shard in together:
                self._write(shard, list(islice(drawn, len(self._samples(shard)))))

    def _samples(self, shard: Shard) -> list[Sample]:
        indices, problems = range(shard.first, shard.last), self._chunks[shard.problems]
        return [(problem, shard.eval_seed, index) for problem in problems for index in indices]

    def _write(self, shard: Shard, drawn: Sequence[Completion]) -> None:
        rows = [
            (*key, one.text, one.token_ids, one.n_tokens, one.finish_reason)
            for key, one in zip(self._samples(shard), drawn, strict=True)
        ]
        columns = [list(column) for column in zip(*rows, strict=True)]
        schema = COLUMNS.with_metadata({_METADATA: self._stamp(shard.problems)})
        with atomic_file(self._folder / shard.file) as temporary:
            table = pa.table(columns, schema=schema)
            pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)

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
