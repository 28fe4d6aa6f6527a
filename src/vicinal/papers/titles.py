"""The papers and the scales by name, which the command checks before torch is imported."""

from __future__ import annotations

SCALES = ("cpu", "night", "paper")

PAPERS = {
    "Z18": "mixup: Beyond Empirical Risk Minimization (Zhang, Cisse, Dauphin & Lopez-Paz 2018)",
    "T19": "On Mixup Training (Thulasidasan, Chennupati, Bilmes, Bhattacharya & Michalak 2019)",
    "L22": "Logit Mixing Training for More Reliable and Accurate Prediction (Bang et al. 2022)",
    "P22": "On the Calibration of Pre-trained Language Models using Mixup (Park & Caragea 2022)",
    "W21": "MixUp Training for the Transformer Architecture (Zhang & Vaidya 2021)",
}
