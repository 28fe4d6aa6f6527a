r"""A temperature for each label of a model that answers several questions at once.

.. math:: p_l = \sigma(z_l / T_l), \qquad T_l = \arg\min_T \sum_i H\big(\sigma(z_{il} / T),\, y_{il}\big)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from vicinal.calibrators.temperature import TemperatureScaling

__all__ = ["LabelTemperatures", "two_logits"]


def two_logits(logits: Tensor) -> Tensor:
    """Return the logits of no and yes, `[N, 2]`, of one label's `[N]`: their softmax is its sigmoid.

    >>> two_logits(torch.tensor([2.0])).tolist()
    [[0.0, 2.0]]
    """
    return torch.stack([torch.zeros_like(logits), logits], dim=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelTemperatures:
    """Temperature scaling of labels that exclude nothing: one temperature for each.

    Parameters
    ----------
    search
        As in `TemperatureScaling`.

    Attributes
    ----------
    temperatures_ : tuple of L floats
        What the logits of each label are divided by.

    >>> logits = torch.tensor([[4.0, 2.0], [-4.0, -2.0], [4.0, 2.0], [-4.0, -2.0]])
    >>> fitted = LabelTemperatures().fit(logits, torch.tensor([[1, 1], [0, 0], [0, 0], [0, 0]]))
    >>> [round(temperature, 2) for temperature in fitted.temperatures_]
    [3.64, 1.82]
    """

    search: str = "newton"
    temperatures_: tuple[float, ...] = field(init=False, repr=False)

    def fit(self, logits: object, targets: object) -> LabelTemperatures:
        """Fit each label's temperature on held-out logits and targets of 0 and 1, both `[N, L]`; return self."""
        z, y = torch.as_tensor(logits), torch.as_tensor(targets)
        if z.ndim != 2 or z.shape != y.shape:
            raise ValueError(f"logits and targets must both be [N, L], got {list(z.shape)} and {list(y.shape)}")
        if not bool(((y == 0) | (y == 1)).all()):
            raise ValueError("targets must hold 0 and 1, one for each label")
        scaling = [
            TemperatureScaling(search=self.search).fit(two_logits(z[:, k]), y[:, k].long()) for k in range(z.shape[1])
        ]
        object.__setattr__(self, "temperatures_", tuple(float(one.temperature_) for one in scaling))
        return self

    def __call__(self, logits: object) -> Tensor:
        """Return the calibrated probability of each label, `[N, L]`, in float64."""
        if not hasattr(self, "temperatures_"):
            raise RuntimeError("LabelTemperatures is not fitted: call fit(logits, targets) first")
        z = torch.as_tensor(logits).double()
        if z.ndim != 2 or z.shape[1] != len(self.temperatures_):
            raise ValueError(f"logits must be [N, {len(self.temperatures_)}], got {list(z.shape)}")
        return (z / torch.tensor(self.temperatures_, dtype=torch.float64)).sigmoid()
