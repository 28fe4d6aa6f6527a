from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from vicinal.probes import confident_joint, label_issues


def slow_joint(probs: Tensor, labels: Tensor) -> list[list[float]]:
    """The definition, with loops."""
    n_classes = probs.shape[1]
    p, y = probs.tolist(), labels.tolist()
    threshold = []
    for j in range(n_classes):
        own = [p[i][j] for i in range(len(y)) if y[i] == j]
        threshold.append(sum(own) / len(own) if own else math.inf)
    joint = [[0.0] * n_classes for _ in range(n_classes)]
    for row, label in zip(p, y, strict=True):
        confident = [j for j in range(n_classes) if row[j] >= threshold[j] - 1e-15]
        if confident:
            joint[label][max(confident, key=lambda j: row[j])] += 1
    for i in range(n_classes):
        if sum(joint[i]) == 0:
            joint[i][i] = 1.0
        scale = y.count(i) / sum(joint[i])
        joint[i] = [scale * count for count in joint[i]]
    return joint


def slow_issues(probs: Tensor, labels: Tensor, margin: float) -> list[bool]:
    p, y = probs.tolist(), labels.tolist()
    joint = slow_joint(probs, labels)
    suspicious = [False] * len(y)
    for i in range(len(joint)):
        for j in range(len(joint)):
            if i == j:
                continue
            members = sorted((k for k in range(len(y)) if y[k] == i), key=lambda k: p[k][i] - p[k][j])
            for k in members[: round(joint[i][j])]:
                suspicious[k] = True
    found = [flag and row.index(max(row)) != label for flag, row, label in zip(suspicious, p, y, strict=True)]
    return [flag or max(row) - row[label] > margin for flag, row, label in zip(found, p, y, strict=True)]


def drawn(n: int, n_classes: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    return logits.softmax(dim=1), (logits + noise).argmax(dim=1)


@pytest.mark.parametrize(("n", "n_classes", "seed"), [(40, 2, 0), (200, 3, 1), (300, 7, 2), (5, 4, 3), (1, 2, 4)])
def test_the_definition(n: int, n_classes: int, seed: int) -> None:
    probs, labels = drawn(n, n_classes, seed)
    expected = torch.tensor(slow_joint(probs, labels), dtype=torch.float64)
    assert torch.allclose(confident_joint(probs, labels), expected, atol=1e-9)
    issues = label_issues(probs, labels)
    assert issues.suspicious.tolist() == slow_issues(probs, labels, 0.1)
    for margin in (0, 0.3, 1):
        assert label_issues(probs, labels, margin=margin).suspicious.tolist() == slow_issues(probs, labels, margin)
    assert torch.equal(issues.prediction, probs.argmax(dim=1))
    for k, (row, label) in enumerate(zip(probs.tolist(), labels.tolist(), strict=True)):
        others = [p for j, p in enumerate(row) if j != label]
        assert float(issues.margin[k]) == pytest.approx(max(others) - row[label], abs=1e-12)


def test_flipped_labels_are_found_among_two_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(1000) % 2
    margin = 4 * (2 * truth - 1) + torch.randn(1000, generator=generator)
    flipped = torch.rand(1000, generator=generator) < 0.1
    probs = torch.stack([-margin, margin], dim=1).softmax(dim=1)
    issues = label_issues(probs, torch.where(flipped, 1 - truth, truth))
    found = issues.suspicious
    assert float((found & flipped).sum() / found.sum()) > 0.98
    assert float((found & flipped).sum() / flipped.sum()) > 0.98
    first = issues.ranking[: int(found.sum())]
    assert bool(found[first].all())
    assert "look mislabelled to models that did not see them" in str(issues)


def test_a_class_without_samples_and_labels_that_are_all_right() -> None:
    probs = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.2, 0.7, 0.1]], dtype=torch.float64)
    issues = label_issues(probs, [0, 1, 0, 1])
    assert not issues.suspicious.any()
    assert issues.joint.tolist() == [[2, 0, 0], [0, 2, 0], [0, 0, 0]]


def test_hostile_arguments() -> None:
    with pytest.raises(ValueError, match=r"probs must have shape \[N, K\] .*got \[3\]"):
        label_issues([0.1, 0.2, 0.7], [0])
    with pytest.raises(ValueError, match="each row must sum to 1"):
        label_issues([[0.4, 0.4]], [0])
    with pytest.raises(ValueError, match="labels must be 1, one for each row of probs, got 2"):
        label_issues([[0.4, 0.6]], [0, 1])
    with pytest.raises(ValueError, match=r"margin must be a number in \[0, 1\], got 1\.5"):
        label_issues([[0.4, 0.6]], [0], margin=1.5)


def test_without_its_margin_the_rule_is_that_of_cleanlab() -> None:
    cleanlab = pytest.importorskip("cleanlab.filter")
    for seed in range(5):
        probs, labels = drawn(500, 3, seed)
        theirs = cleanlab.find_label_issues(labels.numpy(), probs.numpy(), n_jobs=1)
        ours = label_issues(probs, labels, margin=1).suspicious.numpy()
        # The estimated numbers are rounded in another way, so that one sample more or less of each pair may be taken.
        assert 0 < ours.sum() < label_issues(probs, labels).suspicious.sum()
        assert (ours != theirs).sum() <= 6
