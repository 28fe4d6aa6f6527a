"""The toy of Zhang et al. (2018), Section 3.7: a GAN that learns Gaussians on a ring or a grid.

The paper's text does not describe the two toy sets of Figure 5. Its authors' public example does: eight Gaussians on a
circle of radius 1 and 25 on a grid in [−1, 1], with a standard deviation of 0.01 (github.com/hongyi-zhang/mixup).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from vicinal import _random
from vicinal._checks import Argument, Sentence, choice, integer, number
from vicinal.probes.gan import losses as of
from vicinal.probes.toys import GaussianMixture

#: What the discriminator learns from: the published form, and that of the authors' public example.
PAIRS = ("opposite", "any")

#: The panels of Figure 5.
FIGURE_5 = (10, 100, 1_000, 10_000, 20_000)


@dataclass(frozen=True, eq=False)
class GanFit:
    """A trained toy GAN. Made by `fit_gan`."""

    target: GaussianMixture
    """What it was to learn."""
    alpha: float
    """The α of mixup, as `fit_gan` was given it."""
    generator_loss: str
    """The loss of the generator."""
    pairs: str
    """What was mixed, as `fit_gan` was given it."""
    seed: int
    """What weights, data and noise were drawn from."""
    generator: nn.Module
    """The generator after the last iteration."""
    discriminator: nn.Module
    """The discriminator after the last iteration."""
    samples: dict[int, Tensor]
    """Generated samples `[n_samples, 2]` by iteration, on the CPU, all of the same noise; the last iteration is
    among them."""
    losses: Tensor
    """The losses of discriminator (mean of its steps) and generator by iteration, float32 `[iterations, 2]`."""

    @property
    def last(self) -> Tensor:
        """The samples after the last iteration."""
        return self.samples[max(self.samples)]


def fit_gan(
    target: GaussianMixture,
    *,
    alpha: float = 0.2,
    pairs: str = "opposite",
    generator_loss: str = "minimax",
    iterations: int = 20_000,
    discriminator_steps: int = 5,
    batch_size: int = 128,
    lr: float = 1e-3,
    hidden: Sequence[int] = (512, 512, 512),
    noise_dim: int = 2,
    keep_at: Iterable[int] = FIGURE_5,
    n_samples: int = 2500,
    seed: int = 0,
    device: torch.device | str = "cpu",
    on_iteration: Callable[[int, float, float], None] | None = None,
) -> GanFit:
    """Train a GAN on a mixture of Gaussians, with mixup in its discriminator or (`alpha=0`) without.

    Defaults are those of Section 3.7: fully connected networks with three hidden layers of 512 ReLU units,
    two-dimensional Gaussian noise, Adam with its default parameters, batches of 128, five steps of the discriminator
    before each of the generator. The paper's 20,000 mini-batches are read as 20,000 iterations, of one step of the
    generator and those of the discriminator before it. The same seed starts from the same weights and sees the same
    data for every `alpha`. Global generators are left as they were.

    Parameters
    ----------
    target
        `ring_of_gaussians()` or `grid_of_gaussians()`; anything with `sample(n, generator=…)` will do.
    alpha
        α of λ ~ Beta(α, α); 0 is the plain GAN. With `pairs="any"` it is the upper end of λ ~ U(0, α), at most 1.
    pairs
        `"opposite"`: a real sample is mixed with a generated one, as published. `"any"`: any two samples are, each
        with a λ of its own, from two independent batches, as in the authors' public example; `any_pairs_loss`.
    generator_loss
        `"minimax"` (as published), `"saturating"` or `"non-saturating"`; see `vicinal.probes.gan.generator_loss`. The
        authors' example mixes nothing in the generator's step, which is `"saturating"`; with `pairs="any"`,
        `"minimax"` is refused.
    iterations, discriminator_steps, batch_size, lr
        Of the training; Adam's other parameters are torch's defaults.
    hidden
        The units of each hidden layer of either network.
    noise_dim
        Of the generator's input.
    keep_at
        After which iterations to keep samples, beside the last; those beyond `iterations` are left out.
    n_samples
        How many samples to keep.
    seed
        Of everything.
    device
        Where to train.
    on_iteration
        Called after each iteration with its number, from 1 on, and the losses of discriminator and generator.

    >>> from vicinal.probes.gan import ring_of_gaussians
    >>> fit = fit_gan(ring_of_gaussians(), iterations=3, hidden=[8], n_samples=5, keep_at=[1])
    >>> {iteration: samples.shape for iteration, samples in fit.samples.items()}
    {1: torch.Size([5, 2]), 3: torch.Size([5, 2])}
    """
    alpha = number("alpha", alpha, low=0, high=1) if pairs == "any" else number("alpha", alpha, low=0, infinite=True)
    choice("generator_loss", generator_loss, of.GENERATOR_LOSSES)
    if choice("pairs", pairs, PAIRS) == "any" and generator_loss == "minimax":
        raise ValueError(
            Sentence(
                Argument("generator_loss", "minimax"),
                " mixes real and generated samples; with ",
                Argument("pairs", "any"),
                " pass ",
                Argument("generator_loss", "saturating"),
            )
        )
    iterations = integer("iterations", iterations, low=1)
    steps = integer("discriminator_steps", discriminator_steps, low=1)
    batch_size, n_samples = integer("batch_size", batch_size, low=1), integer("n_samples", n_samples, low=1)
    lr, noise_dim = number("lr", lr, above=0), integer("noise_dim", noise_dim, low=1)
    kept_at = {integer("keep_at", iteration, low=1) for iteration in keep_at} | {iterations}
    with _random.restored_globals():
        _random.seed_globals(_random.seed_from("gan weights", integer("seed", seed, low=0)))
        g, d = _network(noise_dim, hidden, 2).to(device), _network(2, hidden, 1).to(device)
    # Streams of their own, so that with and without mixup the same data and noise are seen.
    data, noise, lambdas, shown, other_data, other_noise = (
        torch.Generator().manual_seed(_random.seed_from("gan", stream, seed))
        for stream in ("data", "noise", "lambda", "shown", "other data", "other noise")
    )

    def made(n: int, source: torch.Generator) -> Tensor:
        z = torch.empty(n, noise_dim, device=device)
        fake: Tensor = g(_random.normal_like(z, generator=source))
        return fake

    adam_g, adam_d = (
        torch.optim.Adam(network.parameters(), lr=lr, fused=torch.device(device).type in ("cpu", "cuda"))
        for network in (g, d)
    )
    seen = shown.get_state()
    samples: dict[int, Tensor] = {}
    losses = torch.zeros(iterations, 2)
    for iteration in range(1, iterations + 1):
        total = torch.zeros((), device=device)
        for _ in range(steps):
            real = target.sample(batch_size, generator=data).to(device)
            with torch.no_grad():
                fake = made(batch_size, noise)
            if pairs == "any":
                # The second batch has streams of its own, so that the first is that of the plain GAN.
                others = None
                if alpha > 0:
                    with torch.no_grad():
                        second = target.sample(batch_size, generator=other_data).to(device)
                        others = second, made(batch_size, other_noise)
                loss = of.any_pairs_loss(d, real, fake, others=others, high=alpha, generator=lambdas)
            else:
                loss = of.discriminator_loss(d, real, fake, alpha=alpha, generator=lambdas)
            _step(adam_d, loss, d)
            total += loss.detach()
        real = target.sample(batch_size, generator=data).to(device)
        fake = made(batch_size, noise)
        loss = of.generator_loss(d, fake, kind=generator_loss, real=real, alpha=alpha, generator=lambdas)
        _step(adam_g, loss, g)
        losses[iteration - 1] = torch.stack([total / steps, loss.detach()]).cpu()
        if iteration in kept_at:
            with torch.no_grad():
                shown.set_state(seen)
                samples[iteration] = made(n_samples, shown).cpu()
        if on_iteration is not None:
            on_iteration(iteration, *losses[iteration - 1].tolist())
    return GanFit(target, alpha, generator_loss, pairs, int(seed), g, d, samples, losses)


def _step(optimizer: torch.optim.Optimizer, loss: Tensor, network: nn.Module) -> None:
    """Update this network alone."""
    optimizer.zero_grad()
    loss.backward(inputs=list(network.parameters()))
    optimizer.step()


def _network(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    sizes = [inputs, *(integer("hidden", units, low=1) for units in hidden)]
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))
