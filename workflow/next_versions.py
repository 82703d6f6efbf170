"""Writes the newest versions that fit together, vLLM among them, into environment.yml, and into
pyproject.toml where it has one version alone; then the lock.

    python3 -m workflow.next_versions

What .github/workflows/next.yml tries each week. Needs uv, and the standard library only.
"""

from __future__ import annotations

import re

from workflow import lock

_PIN = re.compile(r'([" ][A-Za-z0-9._-]+(?:\[\w+\])?)==([\w.]+)')
_TOGETHER = [
    *(f"--extra={one}" for one in lock.ALWAYS),
    "--extra=test",
    "--extra=vllm",
    "--extra=gpu",
]


def with_versions(text: str, packages: lock.Entries) -> str:
    """The text with the version of each pin that `packages` has as a single version."""

    def newer(match: re.Match[str]) -> str:
        there = lock.versions(packages.get(lock.normal(match[1][1:].partition("[")[0]), ()))
        return f"{match[1]}=={there.pop() if len(there) == 1 else match[2]}"

    return _PIN.sub(newer, text)


def main() -> None:
    """Write the pins, then the lock."""
    files = [lock.ROOT / "pyproject.toml", lock.ROOT / "environment.yml"]
    loosened = _PIN.sub(r"\1>=\2", files[0].read_text(encoding="utf-8"))
    newest = lock.resolve(loosened, _TOGETHER, ["linux-x86_64"])
    for file in files:
        text = with_versions(file.read_text(encoding="utf-8"), newest)
        file.write_text(text, encoding="utf-8")
    lock.make()


if __name__ == "__main__":
    main()
