"""timm: a plain loop in which one line is vicinal's, with timm's choice between Mixup and CutMix."""

import timm
import torch
from sklearn.datasets import load_digits

from vicinal import CutMix, Mixup, RandomChoice, TemperatureScaling, evaluate

torch.manual_seed(0)
digits = load_digits()
images = torch.nn.functional.interpolate(torch.tensor(digits.images / 16, dtype=torch.float32)[:, None], scale_factor=4)
labels = torch.tensor(digits.target)
model = timm.create_model("test_resnet", num_classes=10, in_chans=1).to(memory_format=torch.channels_last)
objective = RandomChoice(Mixup(alpha=0.2), CutMix(alpha=1.0), probs=[0.5, 0.5])  # timm's --mixup 0.2 --cutmix 1.0
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)

for _ in range(6):
    for batch in torch.randperm(1000).split(50):
        x = images[batch].contiguous(memory_format=torch.channels_last)
        loss = objective(model, x, labels[batch])  # was: F.cross_entropy(model(x), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

model.eval()
with torch.no_grad():
    logits = model(images[1000:])
calibrator = TemperatureScaling().fit(logits[:300], labels[1000:1300])
print(evaluate(labels[1300:], logits=calibrator(logits[300:])))
