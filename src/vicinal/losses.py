r"""Losses as pure functions: logits and targets in, one value per row out.

A target `y` is integer labels `[B]`, soft targets `[B, K]` that sum to one, floats `[B]` for regression, or for labels
that are multi-label (one logit each, binary cross-entropy) the probabilities of no and yes, `[B, L, 2]`: `as_targets`
makes each of what a user has, by the target type, and nothing is guessed from values.
Everything is computed in float32 or better, whatever the type of the logits. Values that are on a device are checked
there, since looking at them would make the host wait.

>>> import torch
>>> logits = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
>>> loss(logits, torch.tensor([0, 1]))
tensor([0.1269, 0.6931])
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from vicinal._arrays import at_least_float32
from vicinal._checks import TARGET_TYPES, Argument, Sentence, choice

__all__ = [
    "as_targets",
    "balanced_weights",
    "check_later",
    "check_targets",
    "check_values",
    "at_hand",
    "entropy",
    "host_copy",
    "loss",
    "mixed_cross_entropy",
    "mixed_loss",
    "on_host",
    "sent_with_copy",
    "smooth",
    "unmapped",
    "weighted_mean",
    "without_class_weights",
]


def as_targets(y: Tensor, target_type: str = "multiclass") -> Tensor:
    """Return what is to be learned in the form that `loss` takes.

    Parameters
    ----------
    y
        Labels `[B]` or soft targets `[B, K]` (`"multiclass"`); 0 and 1, or probabilities, `[B]` or `[B, 1]`
        (`"binary"`) or `[B, L]` (`"multilabel"`); numbers `[B]` or `[B, 1]` (`"regression"`).
    target_type
        `"multiclass"`, `"binary"`, `"multilabel"` or `"regression"`.

    Returns
    -------
    Tensor
        Classes as they are, numbers as floats `[B]`, and no and yes of each label as floats `[B, L, 2]`.

    Examples
    --------
    >>> as_targets(torch.tensor([1, 0]), "binary").shape
    torch.Size([2, 1, 2])
    >>> as_targets(torch.tensor([0.0, 1.0]))
    Traceback (most recent call last):
    ...
    ValueError: y holds floats [B], which say neither ...
    """
    choice("target_type", target_type, TARGET_TYPES)
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a tensor of labels or targets, got {type(y).__name__}")
    if target_type == "multiclass":
        if _is_regression(y):
            raise ValueError(
                Sentence(
                    "y holds floats [B], which say neither classes nor numbers: pass integer labels for classes, ",
                    Argument("target_type", "binary"),
                    " for 0 and 1 with one logit, or ",
                    Argument("target_type", "regression"),
                    " for the squared error",
                )
            )
        return y
    columns = y[:, None] if y.ndim == 1 else y
    if columns.ndim != 2 or (target_type != "multilabel" and columns.shape[1] != 1):
        shape = "[B, L]" if target_type == "multilabel" else "[B] or [B, 1]"
        raise ValueError(f"y must have shape {shape} for target_type={target_type!r}, got {list(y.shape)}")
    numbers = columns if y.is_floating_point() else columns.float()
    if target_type == "regression":
        return numbers[:, 0]
    allowed = f"y must hold 0 and 1, or probabilities, for target_type={target_type!r}"
    known = host_copy(y) if hasattr(y, _HOST_COPY) else numbers
    if not at_hand(known):
        check_later(((known >= 0) & (known <= 1)).all(), allowed)
    elif known.numel():
        low, high = (float(v) for v in torch.aminmax(unmapped(known)))
        if not (low >= 0 and high <= 1):
            raise ValueError(f"{allowed}, got {low:g} to {high:g}")
    return torch.stack([1 - numbers, numbers], dim=2)


def balanced_weights(labels: Tensor, n_classes: int | None = None) -> Tensor:
    r"""Return the weights `[K]` with which all classes count the same: :math:`w_k = N / (K n_k)`, as in scikit-learn.

    Over the samples they average to one. A class without samples has weight 0.

    Returns
    -------
    Tensor
        The weights, float32 `[K]`.

    Examples
    --------
    >>> balanced_weights(torch.tensor([0, 0, 0, 1]))
    tensor([0.6667, 2.0000])
    """
    counts = torch.bincount(torch.as_tensor(labels).long(), minlength=n_classes or 0)
    n, k = int(counts.sum()), int((counts > 0).sum())
    if n == 0:
        raise ValueError("labels must not be empty")
    return torch.where(counts > 0, n / (k * counts.clamp(min=1)), 0.0).float()


def without_class_weights(logits: Tensor, class_weights: Tensor) -> Tensor:
    r"""Return the logits :math:`z_k - \log w_k`, whose probabilities are those of the data again.

    Training with class weights w learns :math:`p_w(k \mid x) \propto w_k\, p(k \mid x)`: rare classes that were given
    weight are predicted more often than they occur. This is the prior correction that undoes it; calibrate after it.

    Returns
    -------
    Tensor
        The corrected logits, of the shape of `logits`.

    Examples
    --------
    >>> without_class_weights(torch.tensor([[0.0, 0.0]]), torch.tensor([1.0, 3.0])).softmax(1)
    tensor([[0.7500, 0.2500]])
    """
    weights = torch.as_tensor(class_weights).to(logits)
    if weights.shape != logits.shape[1:] or not bool((weights > 0).all()):
        raise ValueError(f"class_weights must be {logits.shape[1]} numbers above 0, got {class_weights!r}")
    return logits - weights.log()


def weighted_mean(rows: Tensor, weight: Tensor | None) -> Tensor:
    r"""Return :math:`\sum_i w_i \ell_i / \sum_i w_i`, as `torch.nn.functional.cross_entropy` weighs; 0 where all w are.

    Returns
    -------
    Tensor
        The mean, a scalar.

    Examples
    --------
    >>> weighted_mean(torch.tensor([1.0, 3.0]), torch.tensor([3.0, 1.0]))
    tensor(1.5000)
    """
    if weight is None:
        return rows.mean()
    weight = weight.to(rows)
    total = weight.sum()
    return (weight * rows).sum() / torch.where(total > 0, total, 1)


def loss(logits: Tensor, y: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    r"""Return the loss of each row: cross-entropy :math:`H(z, y)`, or the squared error for float `y` `[B]`.

    Parameters
    ----------
    logits
        `[B, K]`; for regression `[B]` or `[B, 1]`; `[B, L]` for L multi-label targets.
    y
        Labels `[B]`, soft targets `[B, K]`, regression targets `[B]`, or no and yes of each label `[B, L, 2]`, whose
        loss is the mean over labels of the binary cross-entropy.
    label_smoothing
        ε: the label keeps 1 − ε and each other class gets ε/(K − 1).

    Returns
    -------
    Tensor
        The losses `[B]`.

    Examples
    --------
    >>> loss(torch.zeros(2, 2), torch.tensor([0, 1]))
    tensor([0.6931, 0.6931])
    >>> loss(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    tensor([0., 4.])
    """
    check_targets(logits, y, label_smoothing=label_smoothing)
    if _is_regression(y):
        return _squared_error(logits, y)
    if y.is_floating_point():
        return _to_distribution(logits, smooth(y, label_smoothing))
    if label_smoothing == 0:
        return F.cross_entropy(at_least_float32(logits), y.long(), reduction="none")
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

    Returns
    -------
    Tensor
        The losses `[B]`.

    Examples
    --------
    >>> weights, partners = torch.tensor([[0.7, 0.3], [0.7, 0.3]]), torch.tensor([[0, 1], [1, 0]])
    >>> mixed_loss(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]), weights, partners)
    tensor([0.7269, 0.7269])
    """
    check_targets(logits, y, label_smoothing=label_smoothing)
    if y.is_floating_point():
        share = weights.to(logits.device, at_least_float32(logits).dtype)
        mixed = (share.view(*share.shape, *[1] * (y.ndim - 1)) * y[partners]).sum(1)
        if _is_regression(y):
            return _squared_error(logits, mixed)
        return _to_distribution(logits, smooth(mixed, label_smoothing))
    return _cross_entropy(logits, y[partners], weights, label_smoothing)


def mixed_cross_entropy(
    logits: Tensor, labels_a: Tensor, labels_b: Tensor, lam: Tensor | float, *, label_smoothing: float = 0.0
) -> Tensor:
    r"""Return :math:`\lambda H(f(\tilde x), y_a) + (1-\lambda) H(f(\tilde x), y_b)` of each row.

    The two-loader form: `logits` belong to `mix(x_a, x_b, lam)`. One log-softmax serves both labels.

    Returns
    -------
    Tensor
        The losses `[B]`.

    Examples
    --------
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

    Returns
    -------
    Tensor
        The entropies `[B]`, in [0, log K].

    Examples
    --------
    >>> entropy(torch.zeros(1, 2))
    tensor([0.6931])
    """
    log_p = at_least_float32(logits).log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(1)


def smooth(targets: Tensor, label_smoothing: float) -> Tensor:
    r"""Return soft targets `[…, K]` smoothed: each label keeps 1 − ε, each other class gets ε/(K − 1).

    Returns
    -------
    Tensor
        The smoothed targets, of the shape of `targets`.

    Examples
    --------
    >>> smooth(torch.tensor([[1.0, 0.0, 0.0]]), 0.1)
    tensor([[0.9000, 0.0500, 0.0500]])
    """
    if label_smoothing == 0:
        return targets
    kept, spread = _smoothing_weights(label_smoothing, targets.shape[-1])
    return kept * targets + spread


def check_targets(logits: Tensor, y: Tensor, *, label_smoothing: float = 0.0) -> None:
    """Refuse targets that do not fit the logits, before a wrong broadcast turns them into a wrong loss.

    Examples
    --------
    >>> check_targets(torch.zeros(2, 3), torch.tensor([0, 2]))
    >>> check_targets(torch.zeros(2, 3), torch.tensor([0, 3]))
    Traceback (most recent call last):
    ...
    ValueError: labels must be in [0, 2] for 3 logits, got 3
    """
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a tensor of labels or targets, got {type(y).__name__}")
    y = host_copy(y)
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
    if y.is_floating_point() and y.ndim == 3:
        allowed = [y.shape[:2]] if y.shape[1] > 1 else [y.shape[:1], y.shape[:2]]
        if y.shape[2] != 2 or logits.shape not in allowed:
            raise ValueError(
                f"{y.shape[1]} label{'s' * (y.shape[1] > 1)} with one logit each need logits {list(allowed[-1])}, "
                f"got {list(logits.shape)}"
            )
        return
    if logits.ndim != 2 or len(logits) != len(y):
        raise ValueError(
            f"the model must return logits [{len(y)}, K], got {list(logits.shape)}: objectives "
            "are for models that classify a sample as a whole"
        )
    n_classes = logits.shape[1]
    if n_classes == 1:
        raise ValueError(
            Sentence(
                "softmax needs at least two logits: pass ",
                Argument("target_type", "binary"),
                " for binary cross-entropy, or give the model one logit per class",
            )
        )
    if y.is_floating_point():
        _check_soft_targets(logits, y)
        return
    if y.ndim != 1 or y.dtype == torch.bool:
        raise ValueError(Sentence(f"labels must be integers [B], got {y.dtype} {list(y.shape)}", *_SEVERAL_LABELS))
    rule = f"labels must be in [0, {n_classes - 1}] for {n_classes} logits"
    if not at_hand(y):
        check_later(((y >= 0) & (y < n_classes)).all(), rule)
        return
    low, high = (int(v) for v in torch.aminmax(unmapped(y)))
    if low < 0 or high >= n_classes:
        raise ValueError(f"{rule}, got {low if low < 0 else high}")


def sent_with_copy(y: Tensor, device: torch.device) -> Tensor:
    """Return targets of the CPU on a device, with a note of where they came from: there they can be checked at once.

    Returns
    -------
    Tensor
        The same targets on `device`.

    Examples
    --------
    >>> y = sent_with_copy(torch.tensor([0, 1]), torch.device("meta"))
    >>> y.device, on_host(y)
    (device(type='meta'), tensor([0, 1]))
    """
    there = y.to(device, non_blocking=True)
    if there is not y:
        setattr(there, _HOST_COPY, y)
    return there


def on_host(y: Tensor) -> Tensor:
    """Return targets on the CPU; where a loop sent them with a copy, the host need not wait for the device.

    Returns
    -------
    Tensor
        The same targets on the CPU.

    Examples
    --------
    >>> on_host(torch.tensor([0, 1]))
    tensor([0, 1])
    """
    return host_copy(y).cpu()


def host_copy(y: Tensor) -> Tensor:
    """Return what a loop sent to a device as `y`, if it kept a copy; else `y`.

    Returns
    -------
    Tensor
        The same targets.

    Examples
    --------
    >>> host_copy(sent_with_copy(torch.tensor([0, 1]), torch.device("meta")))
    tensor([0, 1])
    """
    held: Tensor = getattr(y, _HOST_COPY, y)
    return held


_HOST_COPY = "_vicinal_host_copy"


def at_hand(t: Tensor) -> bool:
    """Return whether the values of `t` can be looked at: not on a device, and not while a graph is traced.

    Returns
    -------
    bool
        True for a tensor on the CPU outside of a traced graph.

    Examples
    --------
    >>> at_hand(torch.zeros(2)), at_hand(torch.zeros(2, device="meta"))
    (True, False)
    """
    return t.is_cpu and not torch.compiler.is_compiling()


def unmapped(t: Tensor) -> Tensor:
    """Return all values of a tensor inside `torch.func.vmap` and `grad`, where a slice of it has none to look at.

    Returns
    -------
    Tensor
        The whole tensor; `t` itself elsewhere.

    Examples
    --------
    >>> unmapped(torch.tensor([0, 1]))
    tensor([0, 1])
    >>> torch.func.vmap(lambda row: row * len(unmapped(row)))(torch.ones(3))
    tensor([3., 3., 3.])
    """
    while torch._C._functorch.is_functorch_wrapped_tensor(t):
        t = torch._C._functorch.get_unwrapped(t)
    return t


def check_later(ok: Tensor, message: str) -> None:
    """Refuse with `message` unless the scalar `ok` is true, without waiting for the device.

    The check is queued behind what computes `ok`, and part of a traced graph. CUDA reports one that failed at the next
    copy to the host.

    Examples
    --------
    >>> check_later(torch.tensor(True), "labels must not be negative")
    >>> check_later(torch.tensor(False), "labels must not be negative")
    Traceback (most recent call last):
    ...
    RuntimeError: labels must not be negative
    """
    try:
        torch._assert_async(ok, message)
    except NotImplementedError:  # of devices that cannot, the answer is read
        if not bool(ok):
            raise ValueError(message) from None


def check_values(ok: Tensor, message: str) -> None:
    """Refuse with `message` unless the scalar `ok` is true: at once on the CPU, later on a device.

    Examples
    --------
    >>> check_values(torch.tensor(False), "labels must not be negative")
    Traceback (most recent call last):
    ...
    ValueError: labels must not be negative
    """
    if not at_hand(ok):
        check_later(ok, message)
    elif not bool(unmapped(ok).all()):
        raise ValueError(message)


_SEVERAL_LABELS = (": for labels that do not exclude each other pass ", Argument("target_type", "multilabel"))


def _check_soft_targets(logits: Tensor, y: Tensor) -> None:
    if y.shape != logits.shape:
        raise ValueError(f"soft targets must have the logits' shape {list(logits.shape)}, got {list(y.shape)}")
    sums = y.sum(1, dtype=torch.float32)
    near_one = (sums - 1).abs().max() <= (1e-2 if y.dtype in (torch.float16, torch.bfloat16) else 1e-4)
    if not at_hand(y):
        check_later(near_one & (y >= 0).all(), "soft targets must sum to one in each row and must not be negative")
        return
    if not bool(unmapped(near_one).all()):
        given = f"got sums from {sums.min():.6g} to {sums.max():.6g}"
        raise ValueError(Sentence(f"soft targets must sum to one in each row, {given}", *_SEVERAL_LABELS))
    if bool((unmapped(y) < 0).any()):
        raise ValueError(f"soft targets must not be negative, got {y.min():.6g}")


def _cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor | None, label_smoothing: float) -> Tensor:
    """Cross-entropy to Σₖ wₖ·smooth(onehot(labelsₖ)): one log-softmax and a gather, never a dense one-hot."""
    log_p = at_least_float32(logits).log_softmax(dim=1)
    picked = log_p.gather(1, labels.long())
    of_labels = picked[:, 0] if weights is None else (picked * weights.to(picked)).sum(1)
    if label_smoothing == 0:
        return -of_labels
    kept, spread = _smoothing_weights(label_smoothing, logits.shape[1])
    return -(kept * of_labels + spread * log_p.sum(1))


def _to_distribution(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy to soft targets `[B, K]`, or binary to those of each label, `[B, L, 2]`."""
    if targets.ndim == 2:
        return _soft_cross_entropy(logits, targets)
    z = at_least_float32(logits).view(targets.shape[:2])
    yes = targets[..., 1].to(z)
    return (F.softplus(z) - yes * z).mean(1)


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
