"""Hugging Face: a small vision transformer learns digits with Mixup or CutMix, drawn anew for each batch."""

import tempfile

import torch
from sklearn.datasets import load_digits
from transformers import TrainingArguments, ViTConfig, ViTForImageClassification
from transformers.utils import logging

from vicinal import Choice, CutMix, Mixup
from vicinal.integrations.huggingface import MixupTrainer, compute_metrics

logging.set_verbosity_error()
logging.disable_progress_bar()
torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]
rows = [{"pixel_values": x, "labels": int(y)} for x, y in zip(images, digits.target, strict=True)]
config = ViTConfig(
    image_size=8,
    patch_size=2,
    num_channels=1,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    num_labels=10,
)

with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        folder,
        learning_rate=5e-3,
        per_device_train_batch_size=20,
        num_train_epochs=15,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = MixupTrainer(
        ViTForImageClassification(config),
        args,
        train_dataset=rows[:1000],
        eval_dataset=rows[1000:],
        compute_metrics=compute_metrics,
        objective=Choice(Mixup(alpha=0.2), CutMix(alpha=1.0), probs=[0.8, 0.2]),
    )
    trainer.train()
    result = trainer.evaluate()
    for name in ("accuracy", "nll", "brier", "ece", "oe", "n_bins"):
        print(f"{name:10}{result['eval_' + name]:.3f}")
