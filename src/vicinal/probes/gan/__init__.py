"""Mixup for GANs: the pair of losses for a loop of your own, the published toy, and a verdict on it."""

from vicinal.probes.gan.coverage import Coverage, Verdict, coverage, verdict
from vicinal.probes.gan.losses import any_pairs_loss, discriminator_loss, generator_loss
from vicinal.probes.gan.toy import GanFit, fit_gan
from vicinal.probes.toys import GaussianMixture, grid_of_gaussians, ring_of_gaussians

__all__ = [
    "any_pairs_loss",
    "discriminator_loss",
    "generator_loss",
    "fit_gan",
    "GanFit",
    "ring_of_gaussians",
    "grid_of_gaussians",
    "GaussianMixture",
    "coverage",
    "Coverage",
    "verdict",
    "Verdict",
]
