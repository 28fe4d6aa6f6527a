r"""A mixture of calibrators: the weighted mean of their probabilities.

.. math:: p = \sum_m w_m\, p_m, \qquad w_m \ge 0, \quad \sum_m w_m = 1

`calibrate(…, method="auto")` chooses the shares. It takes those of the least NLL of held-out samples,

.. math:: \min_w\ -\frac1n \sum_i \log \sum_m w_m\, p_m(y_i \mid x_i)

where :math:`p_m(y_i \mid x_i)` comes from a calibrator that was fitted without sample i. The problem is convex.

References
----------
Wolpert (1992), Stacked Generalization. Breiman (1996), Stacked Regressions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from scipy.optimize import LinearConstraint, minimize
from scipy.special import log_softmax, logsumexp

from vicinal._checks import ArgumentError, freeze
from vicinal.calibrators.base import Calibrator, Floats, Labels, Logits
from vicinal.calibrators.names import CALIBRATORS, named

#: The least probability that a sample counts with; one outlier does not decide.
_LEAST = 1e-12


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureCalibration(Calibrator):
    """Average the probabilities of several calibrators.

    The predicted class can change. Where members err in different ways their mean has a lower NLL than each.

    Parameters
    ----------
    members
        Names of `CALIBRATORS`, or `"none"`.
    shares
        The share of each member. They sum to one.

    Attributes
    ----------
    members_ : list of calibrators
        The fitted members.

    Examples
    --------
    >>> import numpy as np
    >>> logits, labels = np.array([[2.0, 0.0], [0.0, 2.0]] * 50), np.array([0, 1, 1, 1] * 25)
    >>> mixture = MixtureCalibration(members=("none", "svs"), shares=(0.5, 0.5)).fit(logits, labels)
    >>> none, svs = (member.predict_proba(logits) for member in mixture.members_)
    >>> bool(np.allclose(mixture.predict_proba(logits), (none + svs) / 2))
    True
    """

    members: tuple[str, ...]
    shares: tuple[float, ...]

    members_: list[Calibrator] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the names and the shares."""
        members, shares = tuple(self.members), tuple(float(share) for share in self.shares)
        known = ("none", *CALIBRATORS)
        if not members or len(set(members)) != len(members) or not set(members) <= set(known):
            raise ArgumentError("members", members, f"different names among {', '.join(known)}")
        if len(shares) != len(members) or not min(shares) > 0 or not math.isclose(sum(shares), 1, abs_tol=1e-6):
            raise ArgumentError("shares", shares, f"{len(members)} positive numbers that sum to one")
        freeze(self, members=members, shares=shares)

    @property
    def text(self) -> str:
        """The members in words, the largest share first.

        >>> MixtureCalibration(members=("none", "sms"), shares=(0.3, 0.7)).text
        'mixture of 70 % sms and 30 % none'
        """
        pairs = sorted(zip(self.shares, self.members, strict=True), reverse=True)
        *most, last = [f"{100 * share:.0f} % {name}" for share, name in pairs]
        return f"mixture of {', '.join(most)} and {last}" if most else f"mixture of {last}"

    def _solve(self, logits: Logits, labels: Labels, weights: Floats) -> dict[str, object]:
        members = [named(name, logits.shape[1]) for name in self.members]
        for name, member in zip(self.members, members, strict=True):
            if name != "none":
                member.fit(logits, labels, sample_weight=weights)
        return {"members_": members}

    def _calibrate(self, logits: Logits) -> Logits:
        each = [log_softmax(member._calibrate(logits).astype(np.float64), axis=1) for member in self.members_]
        shares = np.log(self.shares)[:, None, None]
        mixed: Floats = logsumexp(np.stack(each) + shares, axis=0)
        return mixed

    def _restore(self, n_classes: int, **learned: Any) -> dict[str, object]:
        members = [Calibrator.from_state_dict(state) for state in learned["members_"]]
        kinds = [type(named(name, n_classes)) for name in self.members]
        if [type(member) for member in members] != kinds or any(one.n_classes_ != n_classes for one in members):
            raise ValueError(f"members_ must be {', '.join(self.members)}, fitted on {n_classes} classes")
        return {"members_": members}


def mixture_shares(losses: Mapping[str, Floats], weights: Floats) -> dict[str, float]:
    """Return the shares of the mixture with the least held-out NLL, in whole percents; members of 0 % are left out.

    More digits change next to nothing, and would differ with the last digits of the losses.

    Parameters
    ----------
    losses
        The held-out NLL of each sample `[N]`, by member.
    weights
        How many samples each counts as, `[N]`.

    >>> certain, unsure = np.array([0.1, 0.1, 2.0]), np.array([0.7, 0.7, 0.7])
    >>> mixture_shares({"a": certain, "b": unsure}, np.ones(3))
    {'a': 0.51, 'b': 0.49}
    """
    probs = np.maximum(np.exp(-np.stack(list(losses.values()), axis=1)), _LEAST)
    each, m = weights / weights.sum(), len(losses)

    def nll(shares: Floats) -> tuple[float, Floats]:
        mixed = probs @ shares
        return -float(each @ np.log(mixed)), -(each / mixed) @ probs

    found = minimize(
        nll,
        np.full(m, 1 / m),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * m,
        constraints=LinearConstraint(np.ones(m), 1, 1),
        options={"ftol": 1e-9, "maxiter": 200},
    )
    percents = np.floor(100 * found.x)
    largest = np.argsort(percents - 100 * found.x, kind="stable")  # the largest remainders are rounded up
    percents[largest[: round(100 - percents.sum())]] += 1
    return {name: float(part) / 100 for name, part in zip(losses, percents, strict=True) if part > 0}
