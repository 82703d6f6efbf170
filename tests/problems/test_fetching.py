"""Files of public data sets: from a mirror, the hub or its cache; what is wrong with one is said.

The hub is a small server on this machine, which huggingface_hub talks to as to the real one.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from huggingface_hub import constants
from small_benchmark import COMMIT, ROWS, entry, fault, lines, write_mirror

from sage.problems import fetching
from sage.problems.benchmarks import benchmark_problems
from sage.problems.fetching import mirror_folder


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A mirror with the copy of `entry()`."""
    return write_mirror(tmp_path / "mirror")


class Hub:
    """What the server has, what it was asked for, and how many faults it still has in store."""

    def __init__(self) -> None:
        self.files = {f"/datasets/someone/sums/resolve/{COMMIT}/test.jsonl": lines(ROWS)}
        self.asked: Counter[str] = Counter()
        self.faults = 0


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub on this machine, with an empty cache."""
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            state.asked[f"{self.command} {self.path}"] += 1
            heads: dict[str, str] = {}
            content, code = state.files.get(self.path, b""), 200
            if body and state.faults:
                state.faults -= 1
                content, code = b"", 503
            elif content:
                checksum = hashlib.sha256(content).hexdigest()
                heads = {"ETag": f'"{checksum}"', "X-Repo-Commit": COMMIT}
            elif self.path != "/":
                heads, code = {"X-Error-Code": "EntryNotFound"}, 404
            self.send_response(code)
            for name, value in {**heads, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    point_to(monkeypatch, f"http://127.0.0.1:{server.server_port}", tmp_path / "cache")
    yield state
    server.shutdown()
    server.server_close()


def point_to(monkeypatch: pytest.MonkeyPatch, endpoint: str, cache: Path) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub where nothing listens, with an empty cache."""
    point_to(monkeypatch, "http://127.0.0.1:9", tmp_path / "cache")


# Files


def test_a_wrong_checksum_is_reported_with_both(mirror: Path) -> None:
    expected = "0" * 64
    pinned = entry(mirror=[{"path": "sums.jsonl", "rows": 2, "sha256": expected}])
    found = hashlib.sha256(lines(ROWS)).hexdigest()
    message = fault(lambda: benchmark_problems("sums", pinned, mirror))
    assert f"sums.jsonl: its sha256 is {found}, but {expected} is expected" in message


def test_a_wrong_number_of_rows_is_reported(mirror: Path) -> None:
    (mirror / "sums.jsonl").write_bytes(lines(ROWS[:1]))
    message = fault(lambda: benchmark_problems("sums", entry(), mirror))
    assert "sums.jsonl: has 1 rows, but 2 are expected: the file is cut short" in message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lines(ROWS)[:-20], "line 2 is not JSON"),
        (b"[1]\n[2]\n", "line 1 is not a JSON object"),
        (b"\xff\xfe\n", "is not UTF-8"),
    ],
)
def test_a_file_that_is_no_json_lines_is_reported(
    mirror: Path, content: bytes, reason: str
) -> None:
    (mirror / "sums.jsonl").write_bytes(content)
    assert reason in fault(lambda: benchmark_problems("sums", entry(), mirror))


def test_a_cut_parquet_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "sums.parquet"
    pd.DataFrame(ROWS).to_parquet(path)
    path.write_bytes(path.read_bytes()[:-10])
    of_parquet = entry(mirror=[{"path": "sums.parquet"}])
    assert "sums.parquet: cannot be read, correct it" in fault(
        lambda: benchmark_problems("sums", of_parquet, tmp_path)
    )


def test_a_part_of_the_files_is_not_taken_for_the_whole(mirror: Path) -> None:
    two = entry(mirror=[{"path": "sums.jsonl"}, {"path": "more.jsonl"}])
    message = fault(lambda: benchmark_problems("sums", two, mirror))
    assert f"holds a part of its files only; missing: {mirror / 'more.jsonl'}" in message


def test_a_mirror_in_the_hubs_layout_is_found(mirror: Path) -> None:
    target = mirror / "someone/sums/test.jsonl"
    target.parent.mkdir(parents=True)
    shutil.move(mirror / "sums.jsonl", target)
    (problem, _) = benchmark_problems("sums", entry(), mirror)
    assert problem.source == "mirror:test.jsonl"


def test_a_mirror_that_is_no_folder_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SAGE_MIRROR", str(tmp_path / "nowhere"))
    assert "nowhere' is not a folder; correct `mirror`" in fault(mirror_folder)
    monkeypatch.delenv("SAGE_MIRROR")
    assert mirror_folder() is None


def test_copies_that_lack_a_level_do_not_serve(mirror: Path, no_network: None) -> None:
    levels = [{"path": f"{n}.jsonl", "level": str(n)} for n in (3, 4)]
    of_levels = entry(
        hub=[{"repository": "someone/sums", "files": levels}],
        mirror=[{"path": "sums.jsonl", "level": "3"}],
    )
    assert len(benchmark_problems("sums", of_levels, mirror, levels=[3])) == 2
    assert "is not in the mirror" in fault(lambda: benchmark_problems("sums", of_levels, mirror))
    assert "no level 9; its levels: 3, 4" in fault(
        lambda: benchmark_problems("sums", of_levels, mirror, levels=[9])
    )


def test_local_files_alone_make_a_benchmark(mirror: Path) -> None:
    local = entry(hub=[])
    assert len(benchmark_problems("sums", local, mirror)) == 2
    message = fault(lambda: benchmark_problems("sums", local, None))
    assert "there is no mirror with sums.jsonl; set `mirror` in config/config.yaml" in message


# The hub


def test_a_download_records_its_commit_and_is_kept(hub: Hub) -> None:
    for _ in range(2):
        problems = benchmark_problems("sums", entry())
        assert [(p.source, p.revision) for p in problems] == [("someone/sums", COMMIT)] * 2
    (path,) = hub.files
    assert hub.asked[f"GET {path}"] == 1


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses made between tries, none of which is waited for."""
    made: list[float] = []
    monkeypatch.setattr(fetching.time, "sleep", made.append)
    return made


def test_a_hub_that_stumbles_is_asked_again_with_growing_pauses(
    hub: Hub, pauses: list[float]
) -> None:
    hub.faults = 2
    assert len(benchmark_problems("sums", entry())) == 2
    (path,) = hub.files
    assert hub.asked[f"GET {path}"] == 3
    assert pauses == [1.0, 4.0]


def test_a_hub_that_keeps_stumbling_is_given_up_and_leaves_nothing(
    hub: Hub, pauses: list[float], tmp_path: Path
) -> None:
    hub.faults = 100
    assert "503 Service Unavailable" in fault(lambda: benchmark_problems("sums", entry()))
    assert pauses == [1.0, 4.0, 16.0]
    assert not list((tmp_path / "cache").rglob("test.jsonl"))


def test_a_file_the_hub_does_not_have_is_named_at_once(hub: Hub) -> None:
    hub.files.clear()
    message = fault(lambda: benchmark_problems("sums", entry()))
    assert message.startswith(
        "benchmark 'sums': someone/sums/test.jsonl: not in the data set at revision"
    )
    assert "correct the entry in config/benchmarks.yaml" in message


def damage_cache(cache: Path) -> None:
    (blob,) = (path for path in cache.rglob("blobs/*") if path.is_file())
    blob.write_bytes(blob.read_bytes()[:30])


def test_a_damaged_file_in_the_cache_is_fetched_anew(hub: Hub, tmp_path: Path) -> None:
    benchmark_problems("sums", entry())
    damage_cache(tmp_path / "cache")
    assert len(benchmark_problems("sums", entry())) == 2
    (path,) = hub.files
    assert hub.asked[f"GET {path}"] == 2


def test_a_damaged_file_in_the_cache_is_reported_without_network(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark_problems("sums", entry())
    damage_cache(tmp_path / "cache")
    point_to(monkeypatch, "http://127.0.0.1:9", tmp_path / "cache")
    message = fault(lambda: benchmark_problems("sums", entry()))
    assert "line 1 is not JSON" in message
    assert "A fresh copy could not be had" in message


def test_a_file_of_another_content_on_the_hub_is_refused(hub: Hub) -> None:
    file = {"path": "test.jsonl", "sha256": "0" * 64}
    other = entry(hub=[{"repository": "someone/sums", "revision": COMMIT, "files": [file]}])
    assert f"but {'0' * 64} is expected" in fault(lambda: benchmark_problems("sums", other))


def test_without_network_both_ways_out_are_named_soon(no_network: None, mirror: Path) -> None:
    started = time.monotonic()
    (mirror / "sums.jsonl").unlink()
    message = fault(lambda: benchmark_problems("sums", entry(), mirror))
    assert time.monotonic() - started < 8.0
    assert f"is not in the mirror {mirror} and could not be downloaded" in message
    assert "where the Hugging Face hub (http://127.0.0.1:9) can be reached" in message
    assert f"`hf download --repo-type dataset someone/sums --revision {COMMIT}" in message
    assert "set `mirror: MIRROR` in config/config.yaml" in message


def test_in_offline_mode_nothing_is_tried(
    no_network: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "(HF_HUB_OFFLINE is set)" in fault(lambda: benchmark_problems("sums", entry()))


def test_without_network_the_cache_serves(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unpinned = entry(hub=[{"repository": "someone/sums", "files": [{"path": "test.jsonl"}]}])
    (path,) = hub.files
    hub.files[path.replace(COMMIT, "main")] = hub.files[path]
    for chosen in (entry(), unpinned):
        fresh = benchmark_problems("sums", chosen)
        with monkeypatch.context() as patch:
            point_to(patch, "http://127.0.0.1:9", tmp_path / "cache")
            assert benchmark_problems("sums", chosen) == fresh


def test_a_slow_hub_is_not_taken_for_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def head(self, *_: Any, timeout: float) -> None:
            if timeout < 20.0:
                raise fetching.httpx.ReadTimeout("slow")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(fetching, "get_session", Slow)
    assert fetching.silence() is None
