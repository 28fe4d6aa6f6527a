"""The toy GAN of Zhang et al. (2018), Section 3.7, which learns Gaussians on a ring or a grid.

The paper's text does not describe the two toy sets of Figure 5. Its authors' public example does: eight Gaussians on a
circle of radius 1 and 25 on a grid in [−1, 1], with a standard deviation of 0.01 (github.com/hongyi-zhang/mixup).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from vicinal import _random
from vicinal._checks import Argument, Sentence, choice, freeze, integer, number
from vicinal.papers.gan import losses
from vicinal.papers.gan.mixtures import GaussianMixture

#: What the discriminator learns from: the published form, and that of the authors' public example.
PAIRS = ("opposite", "any")

#: The panels of Figure 5.
FIGURE_5 = (10, 100, 1_000, 10_000, 20_000)


@dataclass(frozen=True, kw_only=True)
class GanConfig:
    """How a toy GAN is trained. The defaults are the paper's."""

    alpha: float = 0.2
    """Of mixup; 0 trains a plain GAN. With `pairs="any"` the upper end of λ's uniform distribution."""
    pairs: str = "opposite"
    """What is mixed in the discriminator's step. `"opposite"`: a real with a generated sample, as published. `"any"`:
    any two samples, each with a λ of its own, from two independent batches, as in the authors' public example."""
    generator_loss: str = "minimax"
    """`"minimax"` (as published), `"saturating"` or `"non-saturating"`; see `generator_loss`. `pairs="any"` refuses
    `"minimax"`: the authors' example mixes nothing in the generator's step, which is `"saturating"`."""
    iterations: int = 20_000
    """Steps of the generator."""
    discriminator_steps: int = 5
    """Steps of the discriminator before each step of the generator."""
    batch_size: int = 128
    """Real samples in a step, and generated ones."""
    lr: float = 1e-3
    """Adam's learning rate; its other parameters are torch's defaults."""
    hidden: Sequence[int] = (512, 512, 512)
    """The units of each hidden layer of either network."""
    noise_dim: int = 2
    """Of the generator's input."""

    def __post_init__(self) -> None:
        any_pairs = choice("pairs", self.pairs, PAIRS) == "any"
        choice("generator_loss", self.generator_loss, losses.GENERATOR_LOSSES)
        if any_pairs and self.generator_loss == "minimax":
            raise ValueError(
                Sentence(
                    Argument("generator_loss", "minimax"),
                    " mixes real and generated samples; with ",
                    Argument("pairs", "any"),
                    " pass ",
                    Argument("generator_loss", "saturating"),
                )
            )
        freeze(
            self,
            alpha=number("alpha", self.alpha, low=0, high=1 if any_pairs else math.inf, infinite=not any_pairs),
            lr=number("lr", self.lr, above=0),
            hidden=tuple(integer("hidden", units, low=1) for units in self.hidden),
            **{name: integer(name, getattr(self, name), low=1)
               for name in ("iterations", "discriminator_steps", "batch_size", "noise_dim")},
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class GanFit:
    """A trained toy GAN. Made by `fit_gan`."""

    target: GaussianMixture
    """The mixture to learn."""
    config: GanConfig
    """How it was trained."""
    seed: int
    """Random seed for weights, data and noise."""
    generator: nn.Module
    """The generator after the last iteration."""
    discriminator: nn.Module
    """The discriminator after the last iteration."""
    samples: dict[int, Tensor]
    """Generated samples `[n_samples, 2]` by iteration, on the CPU, all of the same noise. The last iteration is among
    them."""
    losses: Tensor
    """The losses of discriminator (mean of its steps) and generator by iteration, float32 `[iterations, 2]`."""

    @property
    def last(self) -> Tensor:
        """The samples after the last iteration."""
        return self.samples[max(self.samples)]


def fit_gan(
    target: GaussianMixture,
    config: GanConfig | None = None,
    *,
    keep_at: Iterable[int] = FIGURE_5,
    n_samples: int = 2500,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> GanFit:
    """Train a toy GAN. A seed means the same weights, data and noise with and without mixup.

    Parameters
    ----------
    target
        The mixture to learn.
    config
        How to train it; the paper's setting by default.
    keep_at
        After which iterations to keep samples, beside the last; those beyond the last are left out.
    n_samples
        How many samples to keep.
    seed
        Random seed for weights, data and noise.
    device
        Where to train.

    >>> from vicinal.papers.gan import ring_of_gaussians
    >>> fit = fit_gan(ring_of_gaussians(), GanConfig(iterations=3, hidden=[8]), n_samples=5, keep_at=[1])
    >>> {iteration: samples.shape for iteration, samples in fit.samples.items()}
    {1: torch.Size([5, 2]), 3: torch.Size([5, 2])}
    """
    config = GanConfig() if config is None else config
    n_samples = integer("n_samples", n_samples, low=1)
    kept_at = {integer("keep_at", iteration, low=1) for iteration in keep_at} | {config.iterations}
    gan = _ToyGan(target, config, integer("seed", seed, low=0), torch.device(device))
    samples: dict[int, Tensor] = {}
    history = torch.zeros(config.iterations, 2)
    for iteration in range(1, config.iterations + 1):
        total = torch.zeros((), device=device)
        for _ in range(config.discriminator_steps):
            total += gan.discriminator_step()
        history[iteration - 1] = torch.stack([total / config.discriminator_steps, gan.generator_step()]).cpu()
        if iteration in kept_at:
            samples[iteration] = gan.shown(n_samples)
    return GanFit(target, config, int(seed), gan.generator, gan.discriminator, samples, history)


class _ToyGan:
    """The two networks with their optimizers, and the random streams that they draw from."""

    def __init__(self, target: GaussianMixture, config: GanConfig, seed: int, device: torch.device) -> None:
        self.target, self.config, self.device = target, config, device
        with _random.restored_globals():
            _random.seed_globals(_random.seed_from("gan weights", seed))
            self.generator = _network(config.noise_dim, config.hidden, 2).to(device)
            self.discriminator = _network(2, config.hidden, 1).to(device)
        # One stream each, so that the same data and noise are seen with and without mixup.
        self.data, self.noise, self.lambdas, self.shown_noise, self.other_data, self.other_noise = (
            torch.Generator().manual_seed(_random.seed_from("gan", stream, seed))
            for stream in ("data", "noise", "lambda", "shown", "other data", "other noise")
        )
        self.shown_state = self.shown_noise.get_state()
        self.adam_g, self.adam_d = (
            torch.optim.Adam(network.parameters(), lr=config.lr, fused=device.type in ("cpu", "cuda"))
            for network in (self.generator, self.discriminator)
        )

    def discriminator_step(self) -> Tensor:
        """Update the discriminator and return its loss."""
        alpha, real = self.config.alpha, self._real(self.data)
        with torch.no_grad():
            fake = self._fake(self.config.batch_size, self.noise)
        if self.config.pairs == "any":
            others = None
            if alpha > 0:
                # The second batch has streams of its own, so that the first is that of the plain GAN.
                with torch.no_grad():
                    others = self._real(self.other_data), self._fake(self.config.batch_size, self.other_noise)
            loss = losses.any_pairs_loss(
                self.discriminator, real, fake, others=others, high=alpha, generator=self.lambdas
            )
        else:
            loss = losses.discriminator_loss(self.discriminator, real, fake, alpha=alpha, generator=self.lambdas)
        return _step(self.adam_d, loss, self.discriminator)

    def generator_step(self) -> Tensor:
        """Update the generator and return its loss."""
        real, kind = self._real(self.data), self.config.generator_loss
        fake = self._fake(self.config.batch_size, self.noise)
        loss = losses.generator_loss(
            self.discriminator, fake, kind=kind, real=real, alpha=self.config.alpha, generator=self.lambdas
        )
        return _step(self.adam_g, loss, self.generator)

    @torch.no_grad()
    def shown(self, n: int) -> Tensor:
        """Return samples of the noise that every panel shows."""
        self.shown_noise.set_state(self.shown_state)
        return self._fake(n, self.shown_noise).cpu()

    def _real(self, stream: torch.Generator) -> Tensor:
        return self.target.sample(self.config.batch_size, generator=stream).to(self.device)

    def _fake(self, n: int, stream: torch.Generator) -> Tensor:
        z = torch.empty(n, self.config.noise_dim, device=self.device)
        fake: Tensor = self.generator(_random.normal_like(z, generator=stream))
        return fake


def _step(optimizer: torch.optim.Optimizer, loss: Tensor, network: nn.Module) -> Tensor:
    """Update this network alone."""
    optimizer.zero_grad()
    loss.backward(inputs=list(network.parameters()))
    optimizer.step()
    return loss.detach()


def _network(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    sizes = [inputs, *hidden]
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))
