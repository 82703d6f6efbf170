"""What Math-Verify by itself says of answers in a box: a second opinion (`sage.evaluation`).

It works in a process of its own, `python -m sage.grading.second_opinion SECONDS`, which answers a
line of JSON, gold and answer, with a word. An answer that takes more than its seconds of CPU time
ends the process, which is started again; its memory is bounded as well.
"""

from __future__ import annotations

import contextlib
import json
import logging
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence

_MEMORY_BYTES = 2 << 30


def second_opinions(pairs: Sequence[tuple[str, str]], seconds: float) -> list[str]:
    """`correct`, `wrong`, `unparsed` or `timeout` for each (gold, answer).

    Raises RuntimeError if Math-Verify does not start.
    """
    outcomes: list[str] = []
    command = [sys.executable, "-m", "sage.grading.second_opinion", str(seconds)]
    while len(outcomes) < len(pairs):
        asked = "".join(json.dumps(pair) + "\n" for pair in pairs[len(outcomes) :])
        done = subprocess.run(command, input=asked, capture_output=True, text=True)
        if done.returncode > 0:
            raise RuntimeError(f"Math-Verify failed: {done.stderr[-500:]}")
        outcomes += done.stdout.split()
        if done.returncode:
            outcomes.append("timeout")
    return outcomes


def _outcome(gold: str, answer: str) -> str:
    from math_verify import LatexExtractionConfig, parse, verify

    try:
        sides = [
            parse(f"\\boxed{{{side}}}", [LatexExtractionConfig()], parsing_timeout=None)
            for side in (gold, answer)
        ]
        if not all(sides):
            return "unparsed"
        return "correct" if verify(*sides, timeout_seconds=None) else "wrong"
    except MemoryError:
        return "timeout"
    except Exception:
        return "unparsed"


def _answer_lines(seconds: float) -> None:
    logging.disable()
    _outcome("1", "2")  # loads all of it
    with contextlib.suppress(ValueError, OSError):  # macOS refuses; so does a lower limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        outcome = _outcome(*json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(outcome, flush=True)


if __name__ == "__main__":
    _answer_lines(float(sys.argv[1]))
