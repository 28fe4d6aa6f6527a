r"""Losses as pure functions: logits and targets in, one value per row out.

A target `y` is integer labels `[B]`, soft targets `[B, K]` that sum to one, or floats `[B]` for regression.
Everything is computed in float32 or better, whatever the type of the logits.

>>> import torch
>>> logits = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
>>> loss(logits, torch.tensor([0, 1]))
tensor([0.1269, 0.6931])
"""

from __future__ import annotations

import torch
from torch import Tensor

from vicinal._arrays import at_least_float32

__all__ = ["check_targets", "entropy", "loss", "mixed_cross_entropy", "mixed_loss", "smooth"]


def loss(logits: Tensor, y: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    r"""Return the loss of each row: cross-entropy :math:`H(z, y)`, or the squared error for float `y` `[B]`.

    Parameters
    ----------
    logits
        `[B, K]`; for regression `[B]` or `[B, 1]`.
    y
        Labels `[B]`, soft targets `[B, K]` or regression targets `[B]`.
    label_smoothing
        ε: the label keeps 1 − ε and each other class gets ε/(K − 1).
    """
    check_targets(logits, y, label_smoothing=label_smoothing)
    if _is_regression(y):
        return _squared_error(logits, y)
    if y.is_floating_point():
        return _soft_cross_entropy(logits, smooth(y, label_smoothing))
    return _cross_entropy(logits, y[:, None], None, label_smoothing)


def mixed_loss(logits: Tensor, y: Tensor, weights: Tensor, partners: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    r"""Return the loss of each mixed row: :math:`\sum_k w_k H(f(\tilde x), y_{\pi_k})`.

    For regression the squared error to the mixed target :math:`\sum_k w_k y_{\pi_k}`.

    Parameters
    ----------
    logits
        `[B, K]` of the mixed input.
    y
        The targets of the unmixed batch.
    weights, partners
        `[B, k]`: the share and the row number of each source.
    label_smoothing
        Applied once, to each label before it is mixed.
    """
    check_targets(logits, y, label_smoothing=label_smoothing)
    if y.is_floating_point():
        share = weights.to(logits.device, at_least_float32(logits).dtype)
        mixed = (share.view(*share.shape, *[1] * (y.ndim - 1)) * y[partners]).sum(1)
        if _is_regression(y):
            return _squared_error(logits, mixed)
        return _soft_cross_entropy(logits, smooth(mixed, label_smoothing))
    return _cross_entropy(logits, y[partners], weights, label_smoothing)


def mixed_cross_entropy(
    logits: Tensor, labels_a: Tensor, labels_b: Tensor, lam: Tensor | float, *, label_smoothing: float = 0.0
) -> Tensor:
    r"""Return :math:`\lambda H(f(\tilde x), y_a) + (1-\lambda) H(f(\tilde x), y_b)` of each row.

    The two-loader form: `logits` belong to `mix(x_a, x_b, lam)`. One log-softmax serves both labels.

    >>> z = torch.tensor([[0.0, 0.0, 0.0]])
    >>> mixed_cross_entropy(z, torch.tensor([0]), torch.tensor([2]), 0.3)
    tensor([1.0986])
    """
    check_targets(logits, labels_a)
    check_targets(logits, labels_b)
    if labels_a.is_floating_point() or labels_b.is_floating_point():
        raise ValueError("labels_a and labels_b must be integer labels [B]; mix soft targets with mixing.mix")
    weight = torch.as_tensor(lam, dtype=at_least_float32(logits).dtype, device=logits.device)
    if weight.shape not in ((), (len(logits),)):
        raise ValueError(f"lam must be a number or have shape [{len(logits)}], got {list(weight.shape)}")
    weight = weight.expand(len(logits))
    both = torch.stack([labels_a, labels_b], dim=1)
    return _cross_entropy(logits, both, torch.stack([weight, 1 - weight], dim=1), label_smoothing)


def entropy(logits: Tensor) -> Tensor:
    r"""Return the entropy :math:`-\sum_k p_k \log p_k` of each row's softmax, in nats.

    >>> entropy(torch.zeros(1, 2))
    tensor([0.6931])
    """
    log_p = at_least_float32(logits).log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(1)


def smooth(targets: Tensor, label_smoothing: float) -> Tensor:
    r"""Return soft targets `[B, K]` smoothed: each label keeps 1 − ε, each other class gets ε/(K − 1).

    >>> smooth(torch.tensor([[1.0, 0.0, 0.0]]), 0.1)
    tensor([[0.9000, 0.0500, 0.0500]])
    """
    if label_smoothing == 0:
        return targets
    kept, spread = _smoothing_weights(label_smoothing, targets.shape[1])
    return kept * targets + spread


def check_targets(logits: Tensor, y: Tensor, *, label_smoothing: float = 0.0) -> None:
    """Refuse targets that do not fit the logits, before a wrong broadcast turns them into a wrong loss."""
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a tensor of labels or targets, got {type(y).__name__}")
    if not logits.is_floating_point():
        raise TypeError(f"the model must return floating logits, got {logits.dtype}")
    if len(y) == 0:
        raise ValueError("the batch is empty: y has no rows")
    if _is_regression(y):
        if label_smoothing:
            raise ValueError(f"label_smoothing must be 0 for regression targets, got {label_smoothing:g}")
        if logits.shape not in (y.shape, (len(y), 1)):
            raise ValueError(
                f"regression targets {list(y.shape)} need logits [{len(y)}] or [{len(y)}, 1], "
                f"got {list(logits.shape)}; for classification pass integer labels"
            )
        return
    if logits.ndim != 2 or len(logits) != len(y):
        raise ValueError(f"the model must return logits [{len(y)}, K], got {list(logits.shape)}")
    n_classes = logits.shape[1]
    if y.is_floating_point():
        if y.shape != logits.shape:
            raise ValueError(f"soft targets must have the logits' shape {list(logits.shape)}, got {list(y.shape)}")
        sums = y.sum(1, dtype=torch.float32)
        if not bool((sums - 1).abs().max() <= 1e-2 if y.dtype in _COARSE else (sums - 1).abs().max() <= 1e-4):
            raise ValueError(
                f"soft targets must sum to one in each row, got sums from {sums.min():.6g} to {sums.max():.6g}"
            )
        if bool((y < 0).any()):
            raise ValueError(f"soft targets must not be negative, got {y.min():.6g}")
        return
    if y.ndim != 1 or y.dtype == torch.bool:
        raise ValueError(f"labels must be integers [B], got {y.dtype} {list(y.shape)}")
    low, high = (int(v) for v in torch.aminmax(y))
    if low < 0 or high >= n_classes:
        bad = low if low < 0 else high
        raise ValueError(f"labels must be in [0, {n_classes - 1}] for {n_classes} logits, got {bad}")
    if label_smoothing and n_classes < 2:
        raise ValueError("label_smoothing needs at least two classes")


_COARSE = (torch.float16, torch.bfloat16)


def _cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor | None, label_smoothing: float) -> Tensor:
    """Cross-entropy to Σₖ wₖ·smooth(onehot(labelsₖ)): one log-softmax and a gather, never a dense one-hot."""
    log_p = at_least_float32(logits).log_softmax(dim=1)
    picked = log_p.gather(1, labels.long())
    own = picked[:, 0] if weights is None else (picked * weights.to(picked)).sum(1)
    if label_smoothing == 0:
        return -own
    kept, spread = _smoothing_weights(label_smoothing, logits.shape[1])
    return -(kept * own + spread * log_p.sum(1))


def _soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    log_p = at_least_float32(logits).log_softmax(dim=1)
    return -(targets.to(log_p) * log_p).sum(1)


def _squared_error(logits: Tensor, targets: Tensor) -> Tensor:
    return (at_least_float32(logits).view(len(targets)) - at_least_float32(targets)).square()


def _smoothing_weights(label_smoothing: float, n_classes: int) -> tuple[float, float]:
    """ε-smoothing as `kept · onehot + spread`."""
    spread = label_smoothing / (n_classes - 1)
    return 1 - label_smoothing - spread, spread


def _is_regression(y: Tensor) -> bool:
    return y.is_floating_point() and y.ndim == 1
