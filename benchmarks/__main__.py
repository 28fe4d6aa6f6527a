"""Run every benchmark, or those named: `python -m benchmarks core metrics`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).parent
names = sys.argv[1:] or sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
for name in names:
    sys.argv = [name]  # a benchmark's own options stay at their defaults
    print(f"\n## {name}\n", flush=True)
    importlib.import_module(f"benchmarks.bench_{name}").main()
