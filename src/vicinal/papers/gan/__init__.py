"""Mixup for GANs: the pair of losses for a loop of your own, and the toy GAN of the mixup paper."""

from vicinal.papers.gan.coverage import Coverage, coverage
from vicinal.papers.gan.losses import any_pairs_loss, discriminator_loss, generator_loss
from vicinal.papers.gan.mixtures import GaussianMixture, grid_of_gaussians, ring_of_gaussians
from vicinal.papers.gan.training import GanConfig, GanFit, fit_gan

__all__ = ["any_pairs_loss", "discriminator_loss", "generator_loss", "fit_gan", "GanConfig", "GanFit",
           "ring_of_gaussians", "grid_of_gaussians", "GaussianMixture", "coverage", "Coverage"]  # fmt: skip
