"""Keras on torch: a model whose `train_step` asks an objective for the loss."""

import os

os.environ["KERAS_BACKEND"] = "torch"  # before keras is imported
import keras
import torch
from sklearn.datasets import load_digits

from vicinal import Mixup, TemperatureScaling, evaluate


class MixupModel(keras.Model):
    """A functional model whose training loss is an objective's."""

    objective = Mixup(alpha=0.4)

    def train_step(self, data):
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        self.zero_grad()
        loss = self.objective(lambda x: self(x, training=True), x, y.long(), weight=weight)
        loss.backward()
        weights = list(self.trainable_weights)
        with torch.no_grad():
            self.optimizer.apply([w.value.grad for w in weights], weights)
        self._loss_tracker.update_state(loss.detach())
        return {"loss": self._loss_tracker.result()}


keras.utils.set_random_seed(0)
digits = load_digits()
x, y = (digits.data / 16).astype("float32"), digits.target
inputs = keras.Input((64,))
hidden = keras.layers.Dense(64, activation="relu")(inputs)
model = MixupModel(inputs, keras.layers.Dense(10)(hidden))  # logits: no softmax at the end
model.compile(optimizer=keras.optimizers.Adam(3e-3), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(x[:1000], y[:1000], epochs=5, batch_size=50, verbose=0)

logits = torch.as_tensor(model.predict(x[1000:], verbose=0))
calibrator = TemperatureScaling().fit(logits[:300], torch.tensor(y[1000:1300]))
print(evaluate(torch.tensor(y[1300:]), logits=calibrator(logits[300:])))
