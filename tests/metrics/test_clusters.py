"""Samples in groups: the design effect by hand, and how often intervals hold the truth."""

import numpy as np
import pytest

from vicinal.metrics import compare, evaluate, evaluate_binary
from vicinal.metrics.clusters import Groups


def sample(random, n_groups=10, size=45, off=3.0, n_classes=2):
    """Draw groups; the model is wrong about each in its own way. Returns groups, labels and logits."""
    groups = np.repeat(np.arange(n_groups), size)
    z = 3 * random.standard_normal((len(groups), n_classes)) + 3 * random.standard_normal((n_groups, n_classes))[groups]
    true = z + off * random.standard_normal((n_groups, n_classes))[groups]
    return groups, (true + random.gumbel(size=true.shape)).argmax(1), z


def probability(logits):
    return 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))


def test_the_design_effect_of_equal_groups_is_that_of_their_means():
    """With groups of one size, the interval of a mean over groups is Student's of the groups' means."""
    values = np.array([0.0, 0.2, 1.0, 0.9, 0.4, 0.3])
    groups = Groups.of(["a", "a", "b", "b", "c", "c"], 6)
    means = np.array([0.1, 0.95, 0.35])
    np.testing.assert_allclose(groups.means(values), means)
    ratio = (means.var(ddof=1) / 3) / (values.var(ddof=1) / 6) * (4.302653 / 2.570582) ** 2
    assert groups.effective == pytest.approx(3)
    assert groups.design_effect(values, 0.95) == pytest.approx(6 / max(round(6 / ratio), 2))


def test_large_groups_count_for_few():
    assert Groups.of([0] * 90 + list(range(1, 11)), 100).effective == pytest.approx(100**2 / (90**2 + 10))


def test_groups_of_one_sample_change_little():
    random = np.random.default_rng(0)
    _, labels, logits = sample(random, 200, 1)
    alone, grouped = evaluate(labels, logits=logits), evaluate(labels, logits=logits, groups=np.arange(200))
    for name, estimate in alone.metrics.items():
        assert grouped.metrics[name].value == estimate.value
        assert vars(grouped.metrics[name]) == pytest.approx(vars(estimate), abs=0.01), name


def test_intervals_of_every_metric_hold_the_truth_of_new_groups():
    """450 samples in 10 groups: without groups the accuracy is held in about half of all trials."""
    _, labels, logits = sample(np.random.default_rng(1), 20_000, 2)
    true = {name: e.value for name, e in evaluate(labels, logits=logits).metrics.items() if e is not None}
    ranked = evaluate_binary(labels, probability(logits))
    true |= {"auroc": ranked.auroc.value, "ap": ranked.average_precision.value}
    random, trials = np.random.default_rng(2), 50
    held, alone = dict.fromkeys(true, 0), 0
    for _ in range(trials):
        groups, labels, logits = sample(random)
        found = dict(evaluate(labels, logits=logits, groups=groups).metrics)
        ranked = evaluate_binary(labels, probability(logits), groups=groups)
        found |= {"auroc": ranked.auroc, "ap": ranked.average_precision}
        for name in true:
            held[name] += found[name].low <= true[name] <= found[name].high
        plain = evaluate(labels, logits=logits, metrics=["accuracy"]).accuracy
        alone += plain.low <= true["accuracy"] <= plain.high
    assert alone < 0.75 * trials
    assert min(held.values()) >= 0.88 * trials, held  # 50 trials: 0.95 less two standard errors


def test_a_comparison_of_equal_models_in_groups_finds_no_winner():
    random, trials, false, alone = np.random.default_rng(3), 30, 0, 0
    for _ in range(trials):
        groups, labels, logits = sample(random, size=12)
        # Either model is off in other groups, by as much.
        pair = [logits + 1.5 * random.standard_normal((10, 2))[groups] for _ in range(2)]
        measured = {"labels": labels, "metrics": ["accuracy", "nll", "ece"]}
        a, b = (evaluate(**measured, logits=z, groups=groups) for z in pair)
        false += compare(a, b)["nll"].better is not None
        alone += compare(*(evaluate(**measured, logits=z) for z in pair))["nll"].better is not None
    assert alone > 0.2 * trials
    assert false <= 4  # of 30: 5 % and two standard errors


def test_groups_without_a_mistake_count_as_samples():
    found = evaluate([0] * 100, probs=[[0.9, 0.1]] * 100, groups=np.repeat(np.arange(10), 10))
    assert found.accuracy.low == pytest.approx(evaluate([0] * 10, probs=[[0.9, 0.1]] * 10).accuracy.low)


def test_labels_of_several_targets_take_groups():
    random = np.random.default_rng(4)
    groups, labels, logits = sample(random)
    both = np.stack([labels, 1 - labels], axis=1)
    scores = logits[:, 1] - logits[:, 0]
    alone, grouped = (
        evaluate(both, logits=np.stack([scores, -scores], axis=1), target_type="multilabel", groups=g)
        for g in (None, groups)
    )
    for name in ("accuracy", "nll"):
        a, b = alone.metrics[name], grouped.metrics[name]
        assert b.value == a.value
        assert b.high - b.low > 1.3 * (a.high - a.low)


@pytest.mark.parametrize("groups", [[0, 1], [[0], [1], [2]], ["x", "x", "x"]])
def test_hostile_groups_are_refused_by_name(groups):
    with pytest.raises(ValueError, match="groups"):
        evaluate([0, 1, 0], probs=[[0.5, 0.5]] * 3, groups=groups)
