"""Lightning: a module that trains with LogitMix and reports its calibration after each epoch."""

import logging
import warnings

import torch
from lightning import LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from vicinal import LogitMix, Mixup
from vicinal.integrations.lightning import MixupMixin

warnings.filterwarnings("ignore", "The '.*_dataloader' does not have many workers")  # the data are in memory
warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec", FutureWarning)  # torch's, about Lightning
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Digits(MixupMixin, LightningModule):
    objective = LogitMix(Mixup(alpha=3.0))

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


seed_everything(0, verbose=False)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target))
train, test = random_split(data, [1000, len(data) - 1000])

quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = Trainer(max_epochs=10, accelerator="cpu", log_every_n_steps=10, **quiet)
trainer.fit(Digits(), DataLoader(train, batch_size=50, shuffle=True), DataLoader(test, batch_size=200))
for name, value in trainer.callback_metrics.items():
    print(f"{name:14}{value:.3f}")
