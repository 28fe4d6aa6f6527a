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


def slow_cost(probs: Tensor, labels: Tensor, temperature: float, noise: float) -> float:
    """The negative log likelihood of labels with temperature and noise, with loops."""
    total = 0.0
    for row, label in zip(probs.tolist(), labels.tolist(), strict=True):
        powers = [p ** (1 / temperature) for p in row]
        q = powers[label] / sum(powers)
        total -= math.log((1 - noise) * q + noise * (1 - q) / (len(row) - 1))
    return total


def drawn(n: int, n_classes: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    return logits.softmax(dim=1), (logits + noise).argmax(dim=1)


@pytest.mark.parametrize(("n", "n_classes", "seed"), [(40, 2, 0), (200, 3, 1), (300, 7, 2), (5, 4, 3), (1, 2, 4)])
def test_the_definition(n: int, n_classes: int, seed: int) -> None:
    probs, labels = drawn(n, n_classes, seed)
    expected = torch.tensor(slow_joint(probs, labels), dtype=torch.float64)
    assert torch.allclose(confident_joint(labels, probs=probs), expected, atol=1e-9)
    issues = label_issues(labels, probs=probs)
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
    issues = label_issues(torch.where(flipped, 1 - truth, truth), probs=probs)
    found = issues.suspicious
    assert float((found & flipped).sum() / found.sum()) > 0.98
    assert float((found & flipped).sum() / flipped.sum()) > 0.98
    first = issues.ranking[: int(found.sum())]
    assert bool(found[first].all())
    assert issues.noise.low <= 0.1 <= issues.noise.high
    assert abs(issues.false_alarms.value - int((found & ~flipped).sum())) < 10
    assert "are expected to be false alarms" in str(issues)


def simulated(n: int, n_classes: int, noise: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return probabilities, labels drawn from them, some of them changed, and which."""
    generator = torch.Generator().manual_seed(seed)
    probs = (2 * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)).softmax(dim=1)
    labels = torch.multinomial(probs, 1, generator=generator)[:, 0]
    flipped = torch.rand(n, generator=generator) < noise
    moved = torch.randint(1, n_classes, (n,), generator=generator)
    return probs, torch.where(flipped, (labels + moved) % n_classes, labels), flipped


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_class_overlap_is_not_taken_for_label_noise(n_classes: int, temperature: float) -> None:
    """Labels drawn from the probabilities, or from others of the same shape, are right whatever they are."""
    for seed in range(3):
        probs, labels, _ = simulated(1500, n_classes, 0.0, seed)
        sharper = probs ** (1 / temperature)
        issues = label_issues(labels, probs=sharper / sharper.sum(dim=1, keepdim=True))
        assert float(issues.suspicious.double().mean()) <= 0.01
        assert issues.noise.low <= 0.01
        assert int(issues.candidates.sum()) > 0  # to review, of which about all are expected to be right
        assert issues.false_alarms.value > 0.9 * int(issues.candidates.sum())
        assert "No label noise beyond class overlap is significant" in str(issues)


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.2])
def test_label_noise_is_estimated_and_false_alarms_are_expected(noise: float) -> None:
    probs, labels, flipped = simulated(3000, 3, noise, 7)
    issues = label_issues(labels, probs=probs)
    assert issues.noise.low - 0.01 <= noise <= issues.noise.high + 0.01
    false = int((issues.suspicious & ~flipped).sum())
    expected = issues.false_alarms
    assert expected.low - 2 * math.sqrt(false) <= false <= expected.high + 2 * math.sqrt(false)
    assert expected.value == pytest.approx(float((1 - issues.wrong[issues.suspicious]).sum()))
    hits = int((issues.suspicious & flipped).sum())
    assert hits / int(flipped.sum()) > 0.7
    # No temperature and noise nearby have a larger likelihood.
    costs = {
        (t, e): slow_cost(probs, labels, t, e)
        for t in (0.8, 0.9, 1.0, 1.1, 1.25)
        for e in (0.0, issues.noise.value, issues.noise.low - 0.01, issues.noise.high + 0.01)
    }
    assert min(costs, key=lambda key: costs[key])[1] == issues.noise.value


@pytest.mark.parametrize(("n_classes", "noise"), [(2, 0.1), (2, 0.2), (4, 0.2)])
def test_noise_that_the_model_has_learned_is_allowed_for(n_classes: int, noise: float) -> None:
    """Probabilities of a model that knows how noisy labels are distributed show no noise, and exclude none either."""
    for seed in range(2):
        probs, labels, flipped = simulated(1500, n_classes, noise, seed)
        learned = (1 - noise) * probs + noise * (1 - probs) / (n_classes - 1)
        issues = label_issues(labels, probs=learned)
        false = int((issues.candidates & ~flipped).sum())
        assert issues.noise.low <= noise <= issues.noise.high
        assert issues.false_alarms.low <= false <= issues.false_alarms.high + 2 * math.sqrt(false)
        # The end of the interval is where a mixture with more learned noise fits the labels too badly, by loops.
        assert slow_learned(learned, labels, 0.9 * issues.noise.high) < slow_learned(learned, labels, 0.0) + 4
        assert slow_learned(learned, labels, issues.noise.high + 0.05) > slow_learned(learned, labels, noise) + 2


def slow_learned(probs: Tensor, labels: Tensor, learned: float) -> float:
    """The negative log likelihood of labels where probabilities hold a share of noise, with loops."""
    k, total = probs.shape[1], 0.0
    for row, label in zip(probs.tolist(), labels.tolist(), strict=True):
        rest = [max(p - learned / (k - 1), 0.0) for p in row]
        r = rest[label] / sum(rest)
        total -= math.log((1 - learned) * r + learned * (1 - r) / (k - 1))
    return total


def test_a_class_without_samples_and_labels_that_are_all_right() -> None:
    probs = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.2, 0.7, 0.1]], dtype=torch.float64)
    issues = label_issues([0, 1, 0, 1], probs=probs)
    assert not issues.suspicious.any()
    assert issues.joint.tolist() == [[2, 0, 0], [0, 2, 0], [0, 0, 0]]


def test_hostile_arguments() -> None:
    with pytest.raises(ValueError, match="labels must be 3, one for each row of probs, got 1"):
        label_issues([0], probs=[0.1, 0.2, 0.7])
    with pytest.raises(ValueError, match="each row must sum to 1"):
        label_issues([0], probs=[[0.4, 0.4]])
    with pytest.raises(ValueError, match="labels must be 1, one for each row of probs, got 2"):
        label_issues([0, 1], probs=[[0.4, 0.6]])
