r"""Which calibrator? The simplest within one standard error of the best: a temperature, or a mixture of candidates.

Every candidate is fitted on nine tenths of the samples and judged on the rest, ten times (above 2,000 samples on four
fifths, five times), so that each sample i has a held-out loss :math:`\ell_i(c)` under each candidate c. The shares of a
mixture (`MixtureCalibration`) minimise its mean held-out loss, so that the mixture m is the best. With t the
temperature,

.. math::
    d = \frac1n \sum_i \big(\ell_i(t) - \ell_i(m)\big), \qquad \text{se} = \text{its standard error (paired)}

the temperature is taken where :math:`d \le \text{se}` (Breiman et al. 1984), else the mixture. A mixture of one
candidate is that candidate. The samples that judge the mixture chose its shares, so its loss is slightly too low.
`benchmarks/README.md` compares other rules.

============  =====================================================  =========================
name          calibrator                                             candidate for
============  =====================================================  =========================
temperature   `TemperatureScaling`                                   any
none          none: the probabilities stay as they are               any
svs           `StructuredVectorScaling`                              any
sms           `StructuredMatrixScaling`                              up to 100 classes
quadratic     `QuadraticScaling`                                     up to 100 classes
isotonic      `IsotonicCalibration`                                  any
mixture       `MixtureCalibration` of those above                    any
vector        `VectorScaling`                                        on request
dirichlet     `DirichletCalibration`                                 on request
beta          `BetaCalibration`                                      on request
venn-abers    `VennAbersCalibration`                                 on request
histogram     `HistogramBinning`                                     on request
============  =====================================================  =========================
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vicinal._arrays import as_array, as_scores
from vicinal._atomic import Json
from vicinal._checks import ArgumentError, choice, scores_by_name
from vicinal.calibrators.base import Calibrator, Floats
from vicinal.calibrators.mixture import MixtureCalibration, mixture_shares
from vicinal.calibrators.names import CALIBRATORS, named
from vicinal.calibrators.structured_matrix import StructuredMatrixScaling
from vicinal.calibrators.validation import FEW, HeldOut, cross_validated, held_out_nll
from vicinal.metrics.chunks import class_numbers, two_columns

#: Those that `auto` tries besides their mixture, in the order of simplicity.
_TRIED = ("temperature", "none", "svs", "sms", "quadratic", "isotonic")
#: More numbers than this are thinned out for the choice, which they no longer change; the one taken sees them all.
_ENOUGH = 2**20
#: Up to so many samples there are ten folds: with five a candidate of many values would be judged by too few samples.
_FEW = 2_000
#: Of a two-sided 95 % interval.
_Z = 1.959963984540054
#: The least that a probability counts as.
LEAST_PROB = 1e-6


@dataclass(frozen=True)
class Candidate:
    """What a calibrator would give by cross-validation.

    Examples
    --------
    >>> import numpy as np
    >>> logits = 3 * np.random.default_rng(0).normal(size=(100, 2))
    >>> fitted = calibrate(logits.argmax(axis=1), logits=logits, folds=2)
    >>> [candidate.name for candidate in fitted.tried][:2]
    ['temperature', 'none']
    """

    name: str
    """Its name in `CALIBRATORS`, `"none"` or `"mixture"`."""
    nll: float
    """The held-out negative log-likelihood."""
    interval: tuple[float, float]
    """Its 95 % interval."""
    behind: float
    """How much more that is than the best candidate's."""
    standard_error: float
    """Of `behind`, paired."""
    share: float
    """Its share in the mixture; 1 for the mixture itself."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """A fitted calibrator, and why it was taken.

    Call it on logits for calibrated logits, as a calibrator; `predict_proba` takes logits or probabilities.

    Examples
    --------
    >>> fitted = calibrate([0, 1] * 20, logits=[[4.0, 0.0]] * 40, method="temperature")
    >>> fitted.name, fitted.n, fitted.predict_proba(logits=[[4.0, 0.0]]).round(2).tolist()
    ('temperature', 40, [[0.52, 0.48]])
    """

    calibrator: Calibrator
    """Fitted on all samples. `save` keeps it; `Calibrator.load` reads it."""
    name: str
    """Its name in `CALIBRATORS`, `"none"` or `"mixture"`."""
    n: int
    """The number of samples it was fitted on."""
    tried: tuple[Candidate, ...] = ()
    """What each candidate would give, in the order of simplicity; empty where one was named."""
    notes: tuple[str, ...] = ()
    """What its fit warned of."""
    least: float = 0.0
    """What a probability of 0 counts as; see `least_prob`."""

    def __call__(self, logits: Any) -> Any:
        """Return calibrated logits `[N, K]`."""
        return self.calibrator(logits)

    def predict_proba(self, *, logits: Any = None, probs: Any = None) -> Any:
        """Return calibrated probabilities `[N, K]` of logits or of probabilities; see `calibrate`."""
        if (logits is None) == (probs is None):
            raise ValueError("pass exactly one of logits= and probs=")
        logits, probs = _two_columns(logits, probs)
        return self.calibrator.predict_proba(logits_of_probs(probs, self.least or None) if logits is None else logits)

    @property
    def why(self) -> str:
        """Why this calibrator, in a sentence."""
        if not self.tried:
            return f"{self.name}, as asked, fitted on {self.n:,} samples"
        best = min(self.tried, key=_nll)
        taken = next(one for one in self.tried if one.name == self.name)
        held_out = f"NLL {taken.nll:.4f} by cross-validation on {self.n:,} samples"
        if self.name == "none" and self.n < FEW:
            return f"none: so few samples do not show that another would help, {held_out}"
        if self.name == "temperature":
            of_best = "" if taken is best else f" ({best.nll:.4f})"
            return f"temperature: the simplest within one standard error of the best{of_best}, {held_out}"
        what = self.calibrator.text if isinstance(self.calibrator, MixtureCalibration) else self.name
        return f"{what}: better than a temperature by more than one standard error, {held_out}"

    @property
    def sentences(self) -> list[str]:
        """Why this calibrator, what each candidate would give, and what its fit warned of."""
        each = [f"{one.name} {one.nll:.4f} ({one.interval[0]:.4f} to {one.interval[1]:.4f})" for one in self.tried]
        given = [f"held-out NLL of each candidate, with 95 % intervals: {', '.join(each)}"] if each else []
        return [self.why, *given, *self.notes]

    def __str__(self) -> str:
        lines = [self.why]
        if self.tried:
            wide = max(len(one.name) for one in self.tried) + 2
            lines.append(f"{'':<{wide}}{'NLL, 95 % interval':<26}more than the best, ± standard error")
            for one in self.tried:
                nll = f"{one.nll:.4f} [{one.interval[0]:.4f}, {one.interval[1]:.4f}]"
                mark = "  <- taken" if one.name == self.name else ""
                lines.append(f"{one.name:<{wide}}{nll:<26}{one.behind:.4f} ± {one.standard_error:.4f}{mark}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> Json:
        """Return what was taken and what was tried as JSON can hold it."""
        return {
            "name": self.name,
            "n": self.n,
            "why": self.why,
            "tried": [asdict(one) for one in self.tried],
        }


@scores_by_name
def calibrate(
    labels: ArrayLike,
    *,
    logits: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    method: str | Calibrator = "auto",
    sample_weight: ArrayLike | None = None,
    folds: int | ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Calibration:
    """Fit a calibrator to held-out predictions; by default the one that cross-validation chooses.

    Parameters
    ----------
    labels
        Class numbers `[N]`, or names of classes, whose sorted order is that of the columns.
    logits, probs
        Held-out scores `[N, K]`, exactly one of the two; for two classes those of the second, `[N]`. See `least_prob`
        for what a probability of 0 counts as.
    method
        `"auto"`, a name of `CALIBRATORS`, `"none"`, or a calibrator, which is fitted (again).
    sample_weight
        How many samples each row counts as, `[N]`.
    folds
        The number of folds of the cross-validation, or the fold of each sample `[N]`; 10 for up to 2,000 samples and 5
        for more if not given.
    groups
        The group of each sample, `[N]`; a group is never divided between folds, and counts as one in standard errors.

    Returns
    -------
    Calibration
        The fitted calibrator, with what each candidate would give.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> logits = 3 * generator.normal(size=(2_000, 3))
    >>> labels = (logits / 2 + generator.gumbel(size=logits.shape)).argmax(axis=1)  # over-confident by a factor of 2
    >>> fitted = calibrate(labels, logits=logits)
    >>> fitted.name, round(fitted.calibrator.temperature_, 1)
    ('temperature', 2.0)
    """
    if (logits is None) == (probs is None):
        raise ValueError(f"pass exactly one of logits= and probs=, got {'both' if probs is not None else 'neither'}")
    logits, probs = _two_columns(logits, probs)
    labels = class_numbers(labels, None, logits if probs is None else probs)
    least = LEAST_PROB if probs is None else least_prob(probs)
    scores = logits if probs is None else logits_of_probs(probs, least)
    held_out = HeldOut.of(labels, scores, sample_weight=sample_weight, groups=groups, folds=folds)
    n, k = held_out.logits.shape
    tried: tuple[Candidate, ...] = ()
    if isinstance(method, Calibrator):
        name, calibrator = type(method).__name__, method
    else:
        name = choice("method", method, ("auto", "none", *CALIBRATORS))
        if name == "auto":
            tried = candidates(held_out)
            name = _taken(tried)
        calibrator = _mixture(tried) if name == "mixture" else named(name, k)
        if method == "auto" and n > 1 and held_out.n < FEW:
            helps = cross_validated(calibrator, held_out).helps
            name, calibrator = (name, calibrator) if helps else ("none", named("none", k))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if name != "none":
            calibrator.fit(held_out.logits, held_out.labels, sample_weight=held_out.weights)
    notes = tuple(dict.fromkeys(str(one.message) for one in caught))
    return Calibration(calibrator, name, n, tried, notes, least)


def _two_columns(logits: Any, probs: Any) -> tuple[Any, Any]:
    """Return scores of the second of two classes as two columns."""
    if logits is not None and np.ndim(logits) == 1:
        logits = two_columns(logits, are_probs=False)
    if probs is not None and np.ndim(probs) == 1:
        probs = two_columns(probs, are_probs=True)
    return logits, probs


def candidates(held_out: HeldOut) -> tuple[Candidate, ...]:
    """Return what each candidate of `auto` would give by cross-validation, in the order of simplicity."""
    some = held_out.every(-(-held_out.logits.size // _ENOUGH))
    n, k = some.logits.shape
    if n < 2:
        return _compared({"none": held_out_nll(None, some, np.zeros(n, np.int64))}, some, {})
    slow = ("sms", "quadratic") if k > StructuredMatrixScaling().max_classes else ()
    names = [name for name in _TRIED if name not in slow]
    fold = some.fold(10 if some.n <= _FEW else 5)
    fresh = {name: None if name == "none" else named(name, k) for name in names}
    losses = {name: held_out_nll(each, some, fold) for name, each in fresh.items()}
    shares = mixture_shares(losses, some.weights)
    mixed = -np.log(sum(part * np.exp(-losses[name]) for name, part in shares.items()))
    return _compared({**losses, "mixture": mixed}, some, {**shares, "mixture": 1.0})


def _compared(losses: Mapping[str, Floats], held_out: HeldOut, shares: Mapping[str, float]) -> tuple[Candidate, ...]:
    best = min(losses.values(), key=held_out.mean)
    found = []
    for name, each in losses.items():
        nll, half = held_out.mean(each), _Z * held_out.standard_error(each)
        behind, error = held_out.mean(each - best), held_out.standard_error(each - best)
        found.append(Candidate(name, nll, (max(nll - half, 0.0), nll + half), behind, error, shares.get(name, 0.0)))
    return tuple(found)


def _taken(tried: Sequence[Candidate]) -> str:
    """Return a temperature where it is within one standard error of the best, else the mixture: of one its name."""
    simplest = tried[0]
    if simplest.behind <= simplest.standard_error:
        return simplest.name
    members = [one.name for one in tried[:-1] if one.share > 0]
    return members[0] if len(members) == 1 else "mixture"


def _mixture(tried: Sequence[Candidate]) -> MixtureCalibration:
    members = [one for one in tried[:-1] if one.share > 0]
    return MixtureCalibration(members=tuple(one.name for one in members), shares=tuple(one.share for one in members))


def _nll(one: Candidate) -> float:
    return one.nll


def least_prob(probs: ArrayLike) -> float:
    """Return what a probability of 0 counts as: half the smallest positive one, and at least `LEAST_PROB`.

    A forest of 100 trees says 0 for anything below one in a hundred. Taken as one in a million it would be a mistake
    that rules every fit.

    >>> least_prob([[1.0, 0.0], [0.9, 0.1]]), least_prob([[0.9, 0.1]])
    (0.05, 1e-06)
    """
    p = as_array("probs", probs).astype(np.float64)
    return LEAST_PROB if (p > 0).all() else max(LEAST_PROB, float(p[p > 0].min(initial=1.0)) / 2)


def logits_of_probs(probs: ArrayLike, least: float | None = None) -> Floats:
    """Return the logarithms of probabilities `[N, K]`, raised to `least` (by default their `least_prob`).

    >>> logits_of_probs([[1.0, 0.0]], 1e-6).round(2)
    array([[  0.  , -13.82]])
    """
    p = as_array("probs", as_scores("probs", probs)).astype(np.float64)
    if not (p.min() >= 0 and p.max() <= 1):
        raise ArgumentError("probs", float(p.min() if not p.min() >= 0 else p.max()), "numbers in [0, 1]")
    logs: Floats = np.log(np.maximum(p, least_prob(p) if least is None else least))
    return logs
