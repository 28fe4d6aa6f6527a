"""torchmetrics: watch accuracy and calibration of a plain training loop, batch by batch."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torchmetrics import MetricCollection

import vicinal
from vicinal.integrations.torchmetrics import ECE, OE, ReliabilityMetric

torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
train, test = torch.randperm(len(x)).split([1000, len(x) - 1000])

objective = vicinal.Mixup(alpha=0.4)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
metrics = MetricCollection({"ece": ECE(n_bins=15), "oe": OE(n_bins=15), "table": ReliabilityMetric(n_bins=15)})

for epoch in range(10):
    for batch in train[torch.randperm(len(train))].split(50):
        loss = objective(model, x[batch], y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for batch in test.split(100):
            metrics.update(y[batch], logits=model(x[batch]))
    result = metrics.compute()
    print(
        f"epoch {epoch + 1}: accuracy {result['table'].accuracy:.3f}, "
        f"ECE (15 bins) {result['ece']:.3f}, OE {result['oe']:.3f}"
    )
    metrics.reset()
