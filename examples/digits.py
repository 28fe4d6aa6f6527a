"""Train ERM, Mixup and LogitMix on scikit-learn's digits, and show how far their probabilities can be trusted.

    python examples/digits.py [FOLDER]

Prints accuracy, ECE, OE and NLL with 95 % intervals, before and after temperature scaling, the paired differences to
plain training, and writes the reliability diagrams to FOLDER (demo-output).
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import vicinal

METHODS = [vicinal.ERM(), vicinal.Mixup(alpha=0.4), vicinal.LogitMix(vicinal.Mixup(alpha=3.0))]
EPOCHS, BATCH = 40, 32


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a quarter of the digits to train on and the rest to test: little data is where confidence goes wrong."""
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images / 16, labels, train_size=0.25, stratify=labels, random_state=0)
    x_train, x_test, y_train, y_test = (torch.as_tensor(part) for part in split)
    return x_train.float().view(-1, 1, 8, 8), y_train, x_test.float().view(-1, 1, 8, 8), y_test


def network() -> nn.Module:
    """Return a small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def train(objective: vicinal.ERM, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """Train from one seed, so that only the objective differs; the loop is the usual one."""
    torch.manual_seed(0)
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            objective(model, x[batch], y[batch]).backward()
            optimiser.step()
    return model.eval()


def main(folder: Path) -> None:
    """Train each method, print the table and write the picture."""
    x, y, x_rest, y_rest = data()
    held, test = torch.randperm(len(y_rest), generator=torch.Generator().manual_seed(0)).split([300, len(y_rest) - 300])
    print(f"digits: {len(y)} images to train on, {len(held)} held out for the temperature, {len(test)} to test\n")
    evaluations = {}
    for objective in METHODS:
        model, name = train(objective, x, y), type(objective).__name__
        with torch.no_grad():
            logits = model(x_rest)
        scaling = vicinal.TemperatureScaling().fit(logits[held], y_rest[held])
        evaluations[name] = vicinal.evaluate(y_rest[test], logits=logits[test])
        evaluations[f"{name} + T"] = vicinal.evaluate(y_rest[test], logits=scaling(logits[test]))

    metrics = {"accuracy": "accuracy", "ece": "ECE (15 bins)", "oe": "OE (15 bins)", "nll": "NLL"}
    print(f"{'':14}" + "".join(f"{title:>26}" for title in metrics.values()))
    for name, evaluation in evaluations.items():
        print(f"{name:14}" + "".join(f"{getattr(evaluation, metric)!s:>26}" for metric in metrics))
    print("\n+ T: after temperature scaling. ECE with hardly any OE is under-confidence, which a temperature below one")
    print("repairs: strong mixing on an easy task lowers the confidence too far (docs/howto/choose.md).")

    for name in ("Mixup + T", "LogitMix + T"):
        print(f"\n{name} against ERM + T, paired on the same test images:")
        print(vicinal.compare(evaluations["ERM + T"], evaluations[name], names=("ERM + T", name)))

    from matplotlib.figure import Figure

    picture = Figure(figsize=(13.5, 9.6), layout="constrained")
    for column, objective in enumerate(METHODS):
        for row, suffix in enumerate(("", " + T")):
            name = type(objective).__name__ + suffix
            ax = picture.add_subplot(2, len(METHODS), row * len(METHODS) + column + 1)
            vicinal.plots.reliability_diagram(evaluations[name].table, ax=ax).set_title(name)
    folder.mkdir(parents=True, exist_ok=True)
    picture.savefig(folder / "reliability.png", dpi=150, bbox_inches="tight")
    print(f"\nwrote {folder / 'reliability.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output"))
