"""What every public metric promises: order, container and float type do not matter, and bad input is named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from vicinal import metrics
from vicinal.metrics import Comparison, Difference, Estimate, Evaluation, ReliabilityTable, evaluate

N, K = 60, 6


def told_apart(score: Callable[..., np.ndarray]) -> Callable[..., float]:
    """Return how well a score tells right predictions from wrong ones."""

    def metric(labels, **held) -> float:
        samples = evaluate(labels, **held).samples
        right = samples.predictions == samples.labels
        values = score(**held)
        return metrics.auroc(values[right], values[~right])

    return metric


def curve(labels, **held) -> metrics.RiskCoverage:
    samples = evaluate(labels, **held).samples
    return metrics.risk_coverage(samples.confidence, samples.predictions == samples.labels)


#: Every metric of labels and predictions, as a function that returns one number.
METRICS: dict[str, Callable[..., float]] = {
    "accuracy": metrics.accuracy,
    "top_k": lambda labels, **held: metrics.top_k(labels, 2, **held),
    "mcc": metrics.mcc,
    "nll": metrics.nll,
    "brier": metrics.brier,
    "classwise_ece": metrics.classwise_ece,
    "ClasswiseTable": lambda labels, **held: metrics.ClasswiseTable(K).update(labels, **held).per_class().max(),
    **{
        f"ReliabilityTable.{name}": lambda labels, name=name, **held: getattr(
            ReliabilityTable().update(labels, **held), name
        )()
        for name in ("ece", "ece_debiased", "mce", "oe", "rms", "rms_debiased")
    },
    **{
        f"evaluate.{name}": lambda labels, name=name, **held: (
            getattr(evaluate(labels, metrics=list(metrics.METRICS), **held), name).value
        )
        for name, entry in metrics.METRICS.items()
        if entry.measures("multiclass")
    },
    "Tally": lambda labels, **held: sum(metrics.Tally().update(labels, **held).values().values()),
    **{name: told_apart(getattr(metrics, name)) for name in ("max_probability", "negative_entropy", "margin")},
    "risk_coverage.aurc": lambda labels, **held: curve(labels, **held).aurc,
    "RiskCoverage.excess_aurc": lambda labels, **held: curve(labels, **held).excess_aurc,
    "RiskCoverage.aurc_estimate": lambda labels, **held: curve(labels, **held).aurc_estimate().high,
    "RiskCoverage.risk_threshold": lambda labels, **held: curve(labels, **held).risk_threshold(0.99).upper_bound,
    "compare": lambda labels, **held: metrics.compare(evaluate(labels, **held), evaluate(labels, **held))["ece"].b,
}
#: Records, and functions of something other than labels and predictions; they are tested in `tests/metrics`.
ELSEWHERE = {
    *(kind.__name__ for kind in (Comparison, Difference, Estimate, Evaluation, metrics.BinSums, metrics.Samples)),
    *("METRICS", "Metric", "Mistake"),
    *(kind.__name__ for kind in (metrics.OODReport, metrics.RiskThreshold)),
    *("auroc", "average_precision", "energy", "fpr_at_tpr", "ood_report", "risk_threshold"),
    *("equal_mass_edges", "error_estimates", "spearman", "spearman_estimate", "clopper_pearson"),
    *("BaseRate", "BinaryEvaluation", "SetEvaluation", "base_rate", "evaluate_binary", "evaluate_sets"),
    *("SetTally", "measure", "Slice", "evaluate_slices"),
}

each = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


def predictions() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(N, K, generator=generator, dtype=torch.float64)
    return logits, torch.randint(K, (N,), generator=generator)


def test_every_public_metric_has_a_case():
    assert {name.partition(".")[0] for name in METRICS} | ELSEWHERE == set(metrics.__all__)


@each
def test_a_number_for_logits_and_for_their_softmax(metric):
    logits, labels = predictions()
    value = metric(labels, logits=logits)
    assert np.isfinite(value)
    assert metric(labels, probs=logits.softmax(1)) == pytest.approx(value, abs=1e-9)


@each
def test_the_order_of_the_samples_does_not_matter(metric):
    logits, labels = predictions()
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1))
    assert metric(labels[order], logits=logits[order]) == pytest.approx(metric(labels, logits=logits), abs=1e-12)


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_float_type_counts_as_the_numbers_it_holds(metric, dtype):
    logits, labels = predictions()
    held = logits.to(dtype)
    assert metric(labels, logits=held) == pytest.approx(metric(labels, logits=held.double()), abs=1e-6)


@each
def test_arrays_tensors_and_lists_are_alike_and_untouched(metric):
    logits, labels = predictions()
    kept = logits.clone()
    value = metric(labels, logits=logits)
    assert metric(labels.numpy(), logits=logits.numpy()) == value
    assert metric(labels.tolist(), logits=logits.tolist()) == value
    assert metric(labels.to(torch.uint8), logits=logits.clone().requires_grad_()) == value
    assert torch.equal(logits, kept)


@each
def test_it_draws_from_no_global_generator(metric):
    logits, labels = predictions()
    before, state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    assert metric(labels, logits=logits) == metric(labels, logits=logits)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@each
def test_logits_in_0_1_are_still_logits(metric):
    logits, labels = predictions()
    probs = logits.softmax(1)
    assert metric(labels, logits=probs) == pytest.approx(metric(labels, probs=probs.softmax(1)), abs=1e-9)


LOGITS, LABELS = predictions()
HOSTILE = {
    "nan": ({"logits": LOGITS * torch.nan}, LABELS, "logits must be finite"),
    "inf": ({"logits": LOGITS.where(LOGITS.max() != LOGITS, torch.inf)}, LABELS, "logits must be finite"),
    "not probabilities": ({"probs": LOGITS}, LABELS, r"probs must be in \[0, 1\]"),
    "sums": ({"probs": LOGITS.softmax(1) / 2}, LABELS, "probs must sum to one"),
    "3-d": ({"probs": LOGITS.softmax(1)[None]}, LABELS, r"probs must have shape \[N, K\]"),
    "empty": ({"logits": LOGITS[:0]}, LABELS[:0], "logits is empty"),
    "lengths": ({"logits": LOGITS}, LABELS[1:], "the same length, got 59 and 60"),
    "label too high": ({"logits": LOGITS}, LABELS + K, r"labels must be in \[0, 5\]"),
    "label negative": ({"logits": LOGITS}, LABELS - K, r"labels must be in \[0, 5\]"),
    "float labels": ({"logits": LOGITS}, LABELS.double(), "labels must be integer"),
    "column labels": ({"logits": LOGITS}, LABELS[:, None], r"labels must have shape \[N\]"),
    "both": ({"logits": LOGITS, "probs": LOGITS.softmax(1)}, LABELS, "exactly one of"),
    "neither": ({}, LABELS, "exactly one of"),
}


@each
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_refused_by_name(metric, name):
    held, labels, match = HOSTILE[name]
    with pytest.raises(ValueError, match=match):
        metric(labels, **held)
