"""MiniLM against TF-IDF with logistic regression on public texts, on the same splits.

    VICINAL_DATA=… python -m benchmarks.texts [--only trec mr] [--rows 1000] [--fine-tuned] [--out texts.json]
    VICINAL_DATA=… python -m benchmarks.texts --seconds 10000

Every run is `vicinal train NAME --fast --train-size ROWS --max-held-out 500`, or without `--fast` all weights are
trained; the baseline is the report's own. Differences of NLL are paired, with 95 % intervals. `--seconds N` times a
first result instead: N short texts, from the file to the metrics.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from vicinal import compare, data
from vicinal.report.verdicts import versus_baselines
from vicinal.runs import Experiment, baselines, run

SETS = ("trec", "mr", "sst2", "agnews", "glue:cola")
PEER = "logistic regression"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--fine-tuned", action="store_true", help="train all weights")
    parser.add_argument("--seconds", type=int, metavar="N", help="time a first result on so many texts instead")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    if args.seconds:
        print(timed(args.seconds))
        return
    records = json.loads(args.out.read_text()) if args.out is not None and args.out.exists() else []
    for name in args.only:
        if any((r["data"], r["rows"], r["fine_tuned"]) == (name, args.rows, args.fine_tuned) for r in records):
            continue
        records.append(measured(name, args.rows, args.fine_tuned))
        print(json.dumps(records[-1]), flush=True)
        if args.out is not None:
            args.out.write_text(json.dumps(records, indent=1) + "\n")
    print(table(records))


def measured(name: str, rows: int, fine_tuned: bool) -> dict[str, Any]:
    experiment = Experiment(
        source=name,
        data={"train_size": rows, "max_held_out": 500},
        fast=not fine_tuned,
        training={"trackers": []},
    )
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        outcome = run(experiment, Path(folder) / "run", progress=False)
        assert outcome is not None
        seconds = time.process_time() - began
        simple = baselines(outcome.run.task())
    own, peer = outcome.test.after, simple[PEER]
    return {
        "data": name,
        "rows": rows,
        "fine_tuned": fine_tuned,
        "test": own.n,
        "minilm": metrics(own),
        "peer": metrics(peer),
        "difference": vars(compare(peer, own).differences["nll"]),
        "said": versus_baselines(own, {model: each.metrics for model, each in simple.items()}).sentence,
        "seconds": round(seconds, 1),
    }


def metrics(evaluation: Any) -> dict[str, float]:
    return {name: round(evaluation.metrics[name].value, 6) for name in ("accuracy", "nll", "ece")}


def table(records: list[dict[str, Any]]) -> str:
    lines = [
        "| texts | trained | MiniLM: accuracy, NLL, ECE | TF-IDF + logistic regression | less that of TF-IDF | CPU |",
        "|---|---|---|---|---|---|",
    ]
    for r in records:
        cells = [f"{100 * r[m]['accuracy']:.1f} %, {r[m]['nll']:.3f}, {r[m]['ece']:.3f}" for m in ("minilm", "peer")]
        gap = "{value:+.3f} ({low:+.3f} to {high:+.3f})".format(**r["difference"])
        how = "all weights" if r["fine_tuned"] else "`--fast`"
        lines.append(f"| {r['data']} | {how} | {' | '.join(cells)} | {gap} | {r['seconds']:.0f} s |")
    return "\n".join(lines)


def timed(n: int) -> str:
    """Return how long a first result takes on questions of TREC, each with a number, so that none is a copy."""
    every = data.load("trec")
    questions = [(every.train.original(i), every.classes[every.train[i][1]]) for i in range(len(every.train))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            some = ((i, *questions[i % len(questions)]) for i in range(n))
            writer.writerows((f"{text} {i}", label) for i, text, label in some)
        wall, cpu = time.perf_counter(), time.process_time()
        experiment = Experiment(source=str(path), data={"target": "label", "text": "text"}, fast=True)
        outcome = run(experiment, Path(folder) / "run", progress=False)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert outcome is not None
    return f"{n:,} texts: {wall:.0f} s, {cpu:.0f} s of the processor; accuracy {outcome.test.after.accuracy.value:.3f}"


if __name__ == "__main__":
    main()
