r"""An encoder of texts with the mean of its states and a linear head.

.. math:: z = W \, \frac{\sum_t m_t h_t}{\sum_t m_t} + b

with :math:`h_t` the last state of token t and :math:`m_t` whether it is one. The mean is what sentence encoders such as
MiniLM were trained with, so that it separates classes without fine-tuning (Reimers & Gurevych 2019); the first token's
state, which a classification head of BERT takes, does so only after it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class PooledEncoder(nn.Module):
    """A linear classifier of the mean state of an encoder, with dropout of the mean.

    The encoder is one of Hugging Face: called with token ids, it returns an object with `last_hidden_state`.
    """

    def __init__(self, encoder: nn.Module, n_classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        if isinstance(getattr(encoder, "pooler", None), nn.Module):
            encoder.pooler = None  # type: ignore[assignment]  # of the first token: nothing here reads it
        self.encoder = encoder
        self.dropout = nn.Dropout(dropout)
        config: Any = encoder.config
        self.classifier = nn.Linear(int(config.hidden_size), n_classes)

    @property
    def config(self) -> Any:
        """The encoder's configuration."""
        return self.encoder.config

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **more: Tensor) -> Tensor:
        """Return the logits `[B, n_classes]` of token ids `[B, L]`."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        states: Tensor = self.encoder(input_ids=input_ids, attention_mask=mask, **more).last_hidden_state
        weights = mask[:, :, None].to(states.dtype)
        mean = (states * weights).sum(1) / weights.sum(1).clamp_min(1)
        logits: Tensor = self.classifier(self.dropout(mean))
        return logits
