"""fastai: a callback that lets an objective make the loss of a `Learner`."""

import torch
from fastai.callback.core import Callback
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from sklearn.datasets import load_digits

from vicinal import Mixup, TemperatureScaling, evaluate


class Objective(Callback):
    """Train with an objective in the place of `loss_func`; validation stays as it is."""

    def __init__(self, objective):
        self.objective = objective

    def after_loss(self):
        if self.training:
            self.learn.loss_grad = self.objective(self.model, self.xb[0], self.yb[0], epoch=self.epoch + self.pct_train)
            self.learn.loss = self.learn.loss_grad.clone()


torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
train, val = (torch.utils.data.TensorDataset(x[part], y[part]) for part in (slice(0, 1000), slice(1000, 1300)))
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
learner = Learner(
    DataLoaders.from_dsets(train, val, bs=50, device="cpu"),
    net,
    loss_func=torch.nn.CrossEntropyLoss(),
    cbs=[Objective(Mixup(alpha=0.4))],
)
with learner.no_logging():
    learner.fit(5, lr=1e-2)

net.eval()
with torch.no_grad():
    calibrator = TemperatureScaling().fit(net(x[1000:1300]), y[1000:1300])
    print(evaluate(y[1300:], logits=calibrator(net(x[1300:]))))
