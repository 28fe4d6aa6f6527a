"""Mixup for GANs: the pair of losses for a loop of your own, the published toy, and a verdict on it."""

from vicinal._toys import GaussianMixture, grid_of_gaussians, ring_of_gaussians
from vicinal.gan.coverage import Coverage, Verdict, coverage, verdict
from vicinal.gan.losses import discriminator_loss, generator_loss
from vicinal.gan.toy import GanFit, fit_gan

__all__ = [
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
