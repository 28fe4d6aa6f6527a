"""How a trained model holds up: label noise, mislabelled samples, attacks, and the space between samples.

Every probe leaves the model as it found it: modes, gradients and global generators are restored.
"""

from vicinal.probes.attacks import Attack, AttackErrors, attack_errors, fgsm, ifgsm, parse_attack
from vicinal.probes.aum_threshold import Audit, find_mislabelled, suspects, threshold_samples
from vicinal.probes.between import BetweenCurves, between_samples
from vicinal.probes.confident_learning import LabelIssues, confident_joint, label_issues
from vicinal.probes.label_noise import BestAndLast, NoiseErrors, best_and_last, corrupt_labels, noise_errors
from vicinal.probes.noise import GaussianNoise, gaussian_like

__all__ = ["corrupt_labels", "noise_errors", "NoiseErrors", "best_and_last", "BestAndLast", "threshold_samples",
           "suspects", "find_mislabelled", "Audit", "confident_joint", "label_issues", "LabelIssues", "fgsm",
           "ifgsm", "Attack", "parse_attack", "attack_errors", "AttackErrors", "between_samples", "BetweenCurves",
           "gaussian_like", "GaussianNoise"]  # fmt: skip
