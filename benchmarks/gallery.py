"""Train, and compare methods, on real data through the real command; write docs/gallery.md and docs/gallery/.

    VICINAL_DATA=… python -m benchmarks.gallery train   [NAME …]
    VICINAL_DATA=… python -m benchmarks.gallery compare [NAME …]

The data are brought into the form that the command reads (tables, class folders) under gallery-data/, which is not
part of the project. Runs that are finished are not run again: remove gallery-data/runs to start anew.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import shlex
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK = Path("gallery-data")
METHOD = "Mixup(alpha=0.2)"
METHODS = ("ERM()", "ERM(label_smoothing=0.1)", "Mixup(alpha=0.2)", "LogitMix(Mixup(alpha=3.0))")


@dataclass(frozen=True)
class Show:
    """A data set of the gallery: where it is, and the options it is trained and compared with.

    A comparison trains each method once for each seed, so it is given less to do.
    """

    title: str
    about: str
    source: str
    options: tuple[str, ...] = ()
    train: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()
    seeds: int = 3


SHOWS = {
    "htru2": Show(
        "HTRU2",
        "pulsar candidates, 17,898 rows of 8 numbers, 2 classes (one in eleven is a pulsar)",
        f"{WORK}/htru2.csv",
        ("--target", "Class", "--model", "mlp"),
        compare=("--epochs", "10"),
    ),
    "trec": Show(
        "TREC",
        "questions, 5,452 to train and 500 to test, 6 classes",
        f"{WORK}/trec",
        ("--target", "label"),
        compare=("--model", "sentencecnn", "--model-option", "dim=50", "--epochs", "8"),
    ),
    "mr": Show(
        "MR",
        "movie review sentences, 10,662, 2 classes",
        f"{WORK}/mr.csv",
        ("--target", "label", "--model", "sentencecnn"),
        train=("--epochs", "10"),
        compare=("--train-size", "3000", "--model-option", "dim=50", "--epochs", "8"),
    ),
    "fsdd": Show(
        "FSDD",
        "spoken digits of 6 speakers, 3,000 recordings at 8 kHz, 10 classes; every split has all speakers",
        f"{WORK}/fsdd",
        compare=("--model", "lenet", "--train-size", "800", "--seconds", "0.6", "--epochs", "8", "--milestones", "5"),
        seeds=2,
    ),
    "fashion": Show(
        "Fashion-MNIST",
        "28 × 28 grey images of clothes, 10 classes; a part of the 60,000 to train, all 10,000 to test",
        "fashion-mnist",
        train=("--val", "2000", "--train-size", "5000", "--model-option", "width=16", "--epochs", "15"),
        compare=("--val", "1000", "--train-size", "1000", "--model-option", "width=8", "--epochs", "12"),
    ),
}


def prepare() -> None:
    """Bring the data into the form that the command reads."""
    data = Path(os.environ["VICINAL_DATA"])
    WORK.mkdir(exist_ok=True)
    table = WORK / "htru2.csv"
    if not table.exists():
        table.write_bytes(gzip.decompress((data / "uci/htru2/HTRU_2.csv.gz").read_bytes()))
    for part, name in (("train", "train_5500.label"), ("test", "TREC_10.label")):
        lines = (data / "text/trec" / name).read_text("latin-1").splitlines()
        rows = [line.partition(" ")[::2] for line in lines]
        write(WORK / "trec" / f"{part}.csv", [(question, kind.partition(":")[0]) for kind, question in rows])
    reviews = []
    for ending, label in (("pos", "positive"), ("neg", "negative")):
        lines = (data / f"text/mr/rt-polarity.{ending}").read_text("latin-1").splitlines()
        reviews += [(line.strip(), label) for line in lines]
    write(WORK / "mr.csv", reviews)
    if not (WORK / "fsdd").exists():
        with tarfile.open(data / "speech/fsdd/recordings.tar.xz") as archive:
            for member in archive:
                name = Path(member.name).name
                if member.isfile() and name.endswith(".wav"):
                    folder = WORK / "fsdd" / name.partition("_")[0]
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_bytes(archive.extractfile(member).read())


def write(path: Path, rows: list[tuple[str, str]]) -> None:
    if path.exists():
        return
    path.parent.mkdir(exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(rows)


def command(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("vicinal")), *words]


def last_result(words: list[str]) -> dict:
    """Run a command and return its result; what it says on the way is shown."""
    print("$", shlex.join(["vicinal", *words[1:]]), flush=True)
    with subprocess.Popen([*words, "--json"], stdout=subprocess.PIPE, text=True) as process:
        events = [json.loads(line) for line in process.stdout]
    if process.returncode:
        raise SystemExit(f"failed with code {process.returncode}")
    return next(event for event in reversed(events) if event["event"] == "result")


def train(names: list[str]) -> None:
    """Train on these, and write their rows of the page; the others stay."""
    here = ROOT / "docs" / "gallery.md"
    head, _, rest = here.read_text(encoding="utf-8").partition("<!-- metrics -->\n")
    shown, _, tail = rest.partition("<!-- end -->\n")
    rows, lines = [], []
    for name in SHOWS:
        show = SHOWS[name]
        words = command(
            "train", show.source, *show.options, *show.train, "--method", METHOD, "--out", f"{WORK}/runs/{name}"
        )
        lines.append(shlex.join(["vicinal", *words[1:]]))
        if name not in names:
            rows += [f"{line}\n" for line in shown.splitlines() if line.startswith(f"| {show.title} |")]
            continue
        result = last_result(words)
        test = result["sets"]["test"]
        accuracy, before, after = test["before"]["accuracy"], test["before"]["ece"], test["after"]["ece"]
        rows.append(
            f"| {show.title} | {test['before']['n']:,} | {interval(accuracy, 100, 1)} | {interval(before, 1, 3)} "
            f"| {interval(after, 1, 3)} | {result['temperature']:.2f} | {result['seconds']:.0f} s |\n"
        )
    columns = (
        "| data | test samples | accuracy, % | ECE (15 bins) | … after temperature | temperature | training |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    commands = "\n```sh\n" + "\n".join(lines) + "\n```\n"
    text = f"{head}<!-- metrics -->\n{columns}{''.join(rows)}{commands}<!-- end -->\n{tail}"
    here.write_text(text, encoding="utf-8")


def interval(metric: dict, scale: float, digits: int) -> str:
    value, low, high = (f"{scale * metric[part]:.{digits}f}" for part in ("value", "low", "high"))
    return f"{value} ({low}–{high})"


def compare(names: list[str]) -> None:
    folder = ROOT / "docs" / "gallery"
    folder.mkdir(exist_ok=True)
    for name in names:
        show = SHOWS[name]
        methods = [word for method in METHODS for word in ("--method", method)]
        out = Path(WORK) / "compare" / name
        where = ["--seeds", str(show.seeds), "--out", str(out)]
        words = command("compare", show.source, *show.options, *show.compare, *methods, *where)
        result = last_result(words)
        draw(result, folder / f"{name}.png")
        line = shlex.join(["vicinal", *words[1:]])
        text = (
            f"# {show.title}\n\n{show.about[0].upper()}{show.about[1:]}.\n\n```sh\n{line}\n```\n\n"
            f"![Reliability diagrams of the methods, before the temperature, of the first seed]({name}.png)\n\n"
            f"{result['markdown']}\n"
        )
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


def draw(result: dict, path: Path) -> None:
    """Draw each method's reliability diagram, of the first seed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from vicinal import plots
    from vicinal.runs import Run

    figure, axes = plt.subplots(1, len(METHODS), figsize=(3.4 * len(METHODS), 3.6), layout="constrained")
    for ax, method in zip(axes, METHODS, strict=True):
        first = next(cell for cell in result["cells"] if cell["method"] == method)
        plots.reliability_diagram(Run(first["folder"]).result().test.before.table, ax=ax)
        ax.set_title(f"{method}, seed {first['seed']}", fontsize=9)
        if ax is not axes[0]:
            ax.get_legend().remove()
    figure.savefig(path, dpi=80)
    plt.close(figure)


if __name__ == "__main__":
    what, names = sys.argv[1], sys.argv[2:] or list(SHOWS)
    prepare()
    {"train": train, "compare": compare}[what](names)
