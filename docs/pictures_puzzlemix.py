"""The pictures of the PuzzleMix card, drawn by the library itself on scikit-learn's digits.

python docs/pictures_puzzlemix.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vicinal import PuzzleMix
from vicinal.objectives.puzzle.objective import PuzzlePlan
from vicinal.objectives.puzzle.saliency import saliency
from vicinal.objectives.puzzle.transport import apply_transport

WARM, COOL = torch.tensor([1.0, 0.72, 0.3]), torch.tensor([0.35, 0.75, 1.0])
MASK_COLOURS = ("#2f7fc1", "#e9e4da", "#e0922f")  # the partner's, half and half, its own


def draw_puzzlemix(folder: Path) -> list[Path]:
    """Draw every picture of the card into `folder` and return the files."""
    import matplotlib

    matplotlib.use("Agg")
    torch.manual_seed(0)
    images, labels = digits()
    model = small_cnn(images, labels)
    folder.mkdir(parents=True, exist_ok=True)
    return [steps(model, images, labels, folder), grids(model, images, labels, folder)]


def steps(model: nn.Module, images: Tensor, labels: Tensor, folder: Path) -> Path:
    """Draw inputs, saliency, mask, transported pair and result, one row per pair."""
    import matplotlib.pyplot as plt

    pairs = [(images[i], images[j], labels[i], labels[j]) for i, j in ((96, 256), (132, 292), (6, 46))]
    titles = ["$x$", r"$x_\pi$", "$s$", r"$s_\pi$", "$M$", "$T(x)$", r"$T'(x_\pi)$", r"$\tilde x$"]
    figure, axes = plt.subplots(len(pairs), len(titles), figsize=(9.6, 3.9), layout="constrained")
    for row, (a, b, label_a, label_b) in zip(axes, pairs, strict=True):
        x, plan, salient = solve(model, a, b, label_a, label_b, blocks=8)
        own, other = apply_transport(x, plan.source)[0], apply_transport(x[plan.partner], plan.partner_source)[0]
        show(row[0], x[0])
        show(row[1], x[1])
        row[2].imshow(salient[0], cmap="magma")
        row[3].imshow(salient[1], cmap="magma")
        show_mask(row[4], plan.masks[0])
        show(row[5], own)
        show(row[6], other)
        show(row[7], PuzzleMix().mix(x, plan)[0])
        row[0].set_ylabel(f"{int(label_a)} and {int(label_b)}", fontsize=11)
        row[4].set_xlabel(f"$\\bar M$ = {float(plan.lam[0]):.2f}", fontsize=9)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=12)
    return finish(figure, axes, folder / "puzzlemix_steps.png")


def grids(model: nn.Module, images: Tensor, labels: Tensor, folder: Path) -> Path:
    """Draw the same pair at every number of blocks: masks above, results below."""
    import matplotlib.pyplot as plt

    counts = (2, 4, 8, 16)
    figure, axes = plt.subplots(2, len(counts) + 1, figsize=(6.4, 2.75), layout="constrained")
    for column, n in enumerate(counts, start=1):
        x, plan, _ = solve(model, images[132], images[292], labels[132], labels[292], blocks=n)
        show_mask(axes[0, column], plan.masks[0])
        axes[0, column].set_title(f"n = {n}", fontsize=11)
        show(axes[1, column], PuzzleMix().mix(x, plan)[0])
        axes[1, column].set_xlabel(f"$\\bar M$ = {float(plan.lam[0]):.2f}", fontsize=9)
    show(axes[0, 0], x[0])
    axes[0, 0].set_title("inputs", fontsize=11)
    show(axes[1, 0], x[1])
    return finish(figure, axes, folder / "puzzlemix_blocks.png")


def solve(
    model: nn.Module, a: Tensor, b: Tensor, label_a: Tensor, label_b: Tensor, *, blocks: int
) -> tuple[Tensor, PuzzlePlan, Tensor]:
    """Tint a pair warm and cool, and solve its puzzle for λ = ½, with moves cheap enough to be seen."""
    x = torch.stack([a * WARM.view(3, 1, 1), b * COOL.view(3, 1, 1)])
    y = torch.stack([label_a, label_b])
    for seed in range(100):  # until the permutation of two swaps them
        objective = PuzzleMix(alpha=float("inf"), block_counts=(blocks,), transport_eps=0.1, solver="exact")
        plan = objective.draw(model, x, y, generator=torch.Generator().manual_seed(seed))
        if plan.partner.tolist() == [1, 0]:
            return x, plan, saliency(model, x, y)
    raise AssertionError("unreachable: half of all seeds swap a pair")


def show(axis: Any, image: Tensor) -> None:
    """Draw an image."""
    axis.imshow(image.permute(1, 2, 0).clamp(0, 1), interpolation="nearest")


def show_mask(axis: Any, mask: Tensor) -> None:
    """Draw a mask in the colours of who shows."""
    from matplotlib.colors import ListedColormap

    axis.imshow(mask, cmap=ListedColormap(MASK_COLOURS), vmin=0, vmax=1, interpolation="nearest")


def finish(figure: Any, axes: Any, path: Path) -> Path:
    """Take the frames away and save."""
    import matplotlib.pyplot as plt

    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
        for side in axis.spines.values():
            side.set_visible(False)
    figure.savefig(path, dpi=110, facecolor="white")
    plt.close(figure)
    return path


def digits() -> tuple[Tensor, Tensor]:
    """Return scikit-learn's digits, 20 pixels high somewhere on 1 × 32 × 32 images in [0, 1], and their labels."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    small = F.interpolate(torch.tensor(images).float().view(-1, 1, 8, 8) / 16, size=20, mode="bicubic").clamp(0, 1)
    placed = torch.zeros(len(small), 1, 32, 32)
    for image, digit, (top, left) in zip(placed, small, torch.randint(13, (len(small), 2)).tolist(), strict=True):
        image[:, top : top + 20, left : left + 20] = digit
    return 0.12 + 0.88 * placed, torch.tensor(labels)


def small_cnn(images: Tensor, labels: Tensor, n_steps: int = 400) -> nn.Module:
    """Train a small CNN in random colours and noise, so that neither colour nor ground tells it anything."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(32, 32, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step in range(n_steps):
        rows = torch.arange(64 * step, 64 * (step + 1)) % len(images)
        x = images[rows] * (0.3 + 0.7 * torch.rand(64, 3, 1, 1)) + 0.25 * torch.randn(64, 3, 32, 32)
        optimiser.zero_grad()
        F.cross_entropy(model(x), labels[rows]).backward()
        optimiser.step()
    return model


if __name__ == "__main__":
    draw_puzzlemix(Path(__file__).parents[1] / "src" / "vicinal" / "cards" / "img")
