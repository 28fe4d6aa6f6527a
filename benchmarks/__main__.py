"""Run every benchmark, or those named: `python -m benchmarks core metrics`.

Each table has the goals of its rows. At the end come the rows that miss theirs, and what is measured by other commands.
One that fails says so and does not keep the others from running.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from pathlib import Path
from typing import TextIO

from benchmarks.timing import MISSED

#: Programs that are not `bench_NAME.py`, with options that let the whole end within an hour.
OTHERS = {"predictions": ["--kind", "probs", "--rows", "20000000", "--rounds", "2"]}
#: What takes too long, or too much memory, to be part of the whole.
ELSEWHERE = {
    "python -m benchmarks.predictions --kind probs": "evaluate 50 M x 10, >= 4x, < 700 MB (the script takes 13 GB)",
    "python -m benchmarks.bench_tables --train --rows 10000000": "train on 10 M x 20 to its first step, <= 90 s",
    "time make test": "the test suite, <= 8 min on two cores",
}


class Kept:
    """Standard output that remembers the rows that miss their goal."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.line, self.name = stream, "", ""
        self.missed: list[str] = []

    def write(self, text: str) -> int:
        *lines, self.line = (self.line + text).split("\n")
        self.missed += [f"| {self.name} {line}" for line in lines if MISSED in line]
        return self.stream.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)  # flush, isatty, …


def run(name: str, kept: Kept) -> bool:
    """Run one benchmark; return whether it came to its end."""
    kept.name = name
    print(f"\n## {name}\n", flush=True)
    sys.argv = [name, *OTHERS.get(name, [])]  # a benchmark's own options stay at their defaults
    start, before = time.monotonic(), len(kept.missed)
    try:
        importlib.import_module(f"benchmarks.{name if name in OTHERS else f'bench_{name}'}").main()
    except Exception:
        traceback.print_exc()
        print(f"\n{name} failed", flush=True)
        return False
    minutes = (time.monotonic() - start) / 60
    print(f"\n({name}: {minutes:.1f} min, goals missed: {len(kept.missed) - before})", flush=True)
    return True


def main() -> int:
    every = sorted([path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py")] + [*OTHERS])
    kept = Kept(sys.stdout)
    sys.stdout = kept  # type: ignore[assignment]  # all of a stream that print needs
    failed = [name for name in sys.argv[1:] or every if not run(name, kept)]
    print("\n## Rows that miss their goal\n\n" + ("\n".join(kept.missed) or "None."))
    print("\n## Measured by other commands\n")
    print("\n".join(f"- `{command}`: {what}" for command, what in ELSEWHERE.items()))
    if failed:
        print(f"\nFailed: {', '.join(failed)}")
    sys.stdout.flush()
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
