r"""The losses of a GAN whose discriminator learns from mixtures of real and generated samples.

.. math::
    \max_g \min_d \; \mathbb{E}_{x, z, \lambda}\; \ell\bigl(d(\lambda x + (1-\lambda) g(z)), \lambda\bigr)

with ℓ the binary cross-entropy; the plain GAN is :math:`\ell(d(x), 1) + \ell(d(g(z)), 0)`. The generator's part of the
published objective is the discriminator's loss turned round, and is the default here.

The authors' public example has another form (`any_pairs_loss`): the discriminator learns from mixtures of any two
samples, real or generated, with :math:`\lambda \sim U(0, 0.2)` for each, and nothing is mixed in the generator's step.

References
----------
Zhang, Cisse, Dauphin & Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018, Section 3.7.
Its authors' example: github.com/hongyi-zhang/mixup, gan/example_gan.py.
Goodfellow et al., "Generative Adversarial Nets", NeurIPS 2014 (the non-saturating loss of the generator).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from vicinal import _random
from vicinal._arrays import at_least_float32
from vicinal._checks import Argument, Sentence, choice, flag, number
from vicinal._typing import Model
from vicinal.mixing import mix
from vicinal.objectives.forward import call

#: The first is the published one.
GENERATOR_LOSSES = ("minimax", "saturating", "non-saturating")


def discriminator_loss(
    discriminator: Model,
    real: Tensor,
    fake: Tensor,
    *,
    alpha: float = 0.2,
    per_sample: bool = False,
    lam: Tensor | float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return :math:`\ell(d(\lambda x + (1-\lambda) g(z)), \lambda)`, the mean over the batch.

    Parameters
    ----------
    discriminator
        Returns the logit of being real, `[B]` or `[B, 1]` (or an object with `.logits`).
    real, fake
        Batches x and g(z) of one shape. Detach `fake` when only the discriminator is to learn.
    alpha
        α of λ ~ Beta(α, α); the paper's is 0.2. 0 is the plain GAN: in the limit λ is 0 or 1, each half the time, and
        the mean over the two, :math:`\frac12 \ell(d(x), 1) + \frac12 \ell(d(g(z)), 0)`, is taken exactly.
    per_sample
        Draw one λ per sample instead of one per batch.
    lam
        λ itself, a number or `[B]` in [0, 1], where it shall have another distribution; `alpha` is then unused.
    generator
        Where randomness comes from; torch's global generator if not given.

    >>> d = torch.nn.Linear(2, 1)
    >>> _ = torch.nn.init.zeros_(d.weight), torch.nn.init.zeros_(d.bias)
    >>> discriminator_loss(d, torch.ones(4, 2), torch.zeros(4, 2), alpha=0.2).item()  # log 2, whatever λ is
    0.693147...
    """
    alpha, per_sample = number("alpha", alpha, low=0, infinite=True), flag("per_sample", per_sample)
    _check_batch("real", real)
    _check_batch("fake", fake)
    if real.shape != fake.shape:
        raise ValueError(f"real and fake must have one shape, got {list(real.shape)} and {list(fake.shape)}")
    n = len(real)
    if lam is None and alpha == 0:
        # One forward of both, as the mean over λ ∈ {0, 1}.
        target = torch.cat([real.new_ones(n), real.new_zeros(n)])
        return _cross_entropy(discriminator, torch.cat([real, fake]), target)
    if lam is None:
        lam = _random.beta(alpha, n if per_sample else 1, generator=generator).float()
        lam = lam if per_sample else lam[0]
    weight = _weights(lam, n, real)
    return _cross_entropy(discriminator, mix(real, fake, weight), weight.expand(n))


def any_pairs_loss(
    discriminator: Model,
    real: Tensor,
    fake: Tensor,
    *,
    others: tuple[Tensor, Tensor] | None = None,
    high: float = 0.2,
    lam: Tensor | float | None = None,
    partner: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return the discriminator's loss of the authors' public example, the mean over both batches.

    With the rows v of both batches and their targets t, 1 for real and 0 for generated ones, it is
    :math:`\ell(d(\lambda v' + (1-\lambda) v), \lambda t' + (1-\lambda) t)`, where v' is any row, real or generated.

    Parameters
    ----------
    discriminator, real, fake
        As in `discriminator_loss`.
    others
        A second pair of batches (real, fake) of the same shapes, where v' comes from, as in the example; the same
        batches if not given.
    high
        λ ~ U(0, high) for each row; the example's is 0.2. 0 is the plain GAN.
    lam, partner
        λ, a number or `[2B]`, and the place of each row's partner, `[2B]`, instead of draws.
    generator
        Where randomness comes from; torch's global generator if not given.

    >>> d = torch.nn.Linear(2, 1)
    >>> _ = torch.nn.init.zeros_(d.weight), torch.nn.init.zeros_(d.bias)
    >>> any_pairs_loss(d, torch.ones(4, 2), torch.zeros(4, 2)).item()  # log 2, whatever λ is
    0.693147...
    """
    high = number("high", high, low=0, high=1)
    for name, batch in (("real", real), ("fake", fake)):
        _check_batch(name, batch)
    if any(batch.shape != real.shape for batch in (fake, *(others or ()))):
        raise ValueError("real, fake and others must have one shape")
    rows, n = torch.cat([real, fake]), 2 * len(real)
    target = torch.cat([real.new_ones(len(real)), real.new_zeros(len(real))])
    if lam is None and high == 0:
        return _cross_entropy(discriminator, rows, target)
    if lam is None:
        lam = high * _random.uniform_like(torch.empty(n), generator=generator)
    if partner is None:
        partner = _random.permutation(n, generator=generator)
    elif partner.shape != (n,):
        raise ValueError(f"partner must have shape [{n}], got {list(partner.shape)}")
    weight, chosen = _weights(lam, n, real), partner.to(real.device)
    mixed = mix((rows if others is None else torch.cat(others))[chosen], rows, weight)
    return _cross_entropy(discriminator, mixed, weight * target[chosen] + (1 - weight) * target)


def generator_loss(
    discriminator: Model,
    fake: Tensor,
    *,
    kind: str = "minimax",
    real: Tensor | None = None,
    alpha: float = 0.2,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return what the generator minimises, the mean over the batch.

    Parameters
    ----------
    discriminator
        As in `discriminator_loss`. Gradients reach its parameters too: step only the generator's optimiser.
    fake
        g(z), attached to the generator.
    kind
        `"minimax"`, the published objective: :math:`-\ell(d(\lambda x + (1-\lambda) g(z)), \lambda)`, the
        discriminator's loss turned round, which needs `real`; at α = 0 it is half the saturating loss plus what does
        not depend on g. On the paper's toy its samples may leave the data altogether.
        `"saturating"`: :math:`-\ell(d(g(z)), 0)`, what is left of it at λ = 0. `"non-saturating"`:
        :math:`\ell(d(g(z)), 1)`.
    real, alpha, per_sample
        As in `discriminator_loss`, for `"minimax"` alone.
    generator
        Where randomness comes from; torch's global generator if not given.

    >>> d = torch.nn.Linear(2, 1)
    >>> generator_loss(d, torch.zeros(4, 2), real=torch.ones(4, 2)).shape
    torch.Size([])
    """
    if choice("kind", kind, GENERATOR_LOSSES) == "minimax":
        if real is None:
            raise ValueError(
                Sentence(
                    "kind='minimax', the published loss, mixes real and generated samples: pass ",
                    Argument("real"),
                    ", or ",
                    Argument("kind", "non-saturating"),
                )
            )
        return -discriminator_loss(discriminator, real, fake, alpha=alpha, per_sample=per_sample, generator=generator)
    _check_batch("fake", fake)
    if kind == "saturating":
        return -_cross_entropy(discriminator, fake, fake.new_zeros(len(fake)))
    return _cross_entropy(discriminator, fake, fake.new_ones(len(fake)))


def _weights(lam: Tensor | float, n: int, real: Tensor) -> Tensor:
    weight = torch.as_tensor(lam, dtype=torch.float32, device=real.device)
    if weight.shape not in ((), (n,)):
        raise ValueError(f"lam must be a number or have shape [{n}], got {list(weight.shape)}")
    if not bool(((weight >= 0) & (weight <= 1)).all()):
        raise ValueError(f"lam must be in [0, 1], got values from {weight.min():.4g} to {weight.max():.4g}")
    return weight


def _cross_entropy(discriminator: Model, x: Tensor, target: Tensor) -> Tensor:
    logits = call(discriminator, x)
    if logits.shape not in ((len(x),), (len(x), 1)):
        raise ValueError(f"the discriminator must return one logit per row, [{len(x)}], got {list(logits.shape)}")
    logits = at_least_float32(logits).view(len(x))
    return binary_cross_entropy_with_logits(logits, target.to(logits))


def _check_batch(name: str, batch: Tensor) -> None:
    if not isinstance(batch, Tensor) or not batch.is_floating_point() or batch.ndim < 1 or len(batch) == 0:
        raise ValueError(f"{name} must be a floating tensor [B, …] with at least one row, got {_kind(batch)}")


def _kind(value: object) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
