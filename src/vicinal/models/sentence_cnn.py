r"""The sentence CNN: convolutions over word vectors, each map's maximum, dropout, one linear layer.

.. math::
    c_i = \mathrm{ReLU}(w \cdot x_{i:i+h-1} + b), \qquad \hat c = \max_i c_i, \qquad
    z = W\,\mathrm{dropout}([\hat c_1, \dots, \hat c_m]) + b, \qquad \lVert W_k \rVert_2 \le s

References
----------
Kim, "Convolutional Neural Networks for Sentence Classification", EMNLP 2014: filters of 3, 4 and 5 words, 100 maps of
each, dropout 0.5, s = 3, batches of 50, Adadelta. Thulasidasan et al., "On Mixup Training", NeurIPS 2019, Section 4,
start from GloVe vectors that training changes, and mix at the word vectors: `ManifoldMixup(layers=["embedding"])`, or
`SequenceMixup.input()`.

Deviation: a sentence has 5 zero vectors on both sides where the published code has 4, so that the widest filter
also sees one window of zeros, and how far a batch is padded never changes a logit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vicinal._checks import ArgumentError, integer, number


class SentenceCNN(nn.Module):
    """Kim's CNN over trainable word vectors.

    Called with token ids `[B, L]`, it returns logits `[B, n_classes]`. The paper's training:

        optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0, rho=0.95, eps=1e-6)   # batches of 50
        loss = objective(model, ids, y)
        loss.backward()
        optimizer.step()
        model.clip_norms()                                                                 # after every step

    Parameters
    ----------
    vocab_size, n_classes
        How many words and classes there are.
    dim
        The length of a word vector; 300 in the paper.
    widths, maps
        The widths of the filters, and how many there are of each.
    dropout
        The share of features that is dropped before the linear layer.
    max_norm
        s: no class's weights are longer than this after `clip_norms`.
    padding_id
        The token whose vector is zero and stays so.

    Examples
    --------
    >>> model = SentenceCNN(1000, 2, dim=50)
    >>> model(torch.randint(1000, (4, 12))).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        vocab_size: int,
        n_classes: int,
        *,
        dim: int = 300,
        widths: Sequence[int] = (3, 4, 5),
        maps: int = 100,
        dropout: float = 0.5,
        max_norm: float = 3.0,
        padding_id: int = 0,
    ) -> None:
        super().__init__()
        vocab_size, n_classes = integer("vocab_size", vocab_size, low=1), integer("n_classes", n_classes, low=1)
        dim = integer("dim", dim, low=1)
        if not isinstance(widths, Sequence) or not widths:
            raise ValueError(f"widths must hold at least one filter width, got {widths!r}")
        if integer("padding_id", padding_id, low=0) >= vocab_size:
            raise ValueError(f"padding_id must be below vocab_size={vocab_size}, got {padding_id}")
        widths = [integer("widths", width, low=1) for width in widths]
        maps = integer("maps", maps, low=1)
        self.max_norm = number("max_norm", max_norm, above=0)
        self.margin = max(widths)
        self.embedding = nn.Embedding(vocab_size, dim, padding_idx=padding_id)
        self.convolutions = nn.ModuleList(nn.Conv1d(dim, maps, width) for width in widths)
        self.dropout = nn.Dropout(number("dropout", dropout, low=0, high=1))
        self.classifier = nn.Linear(maps * len(widths), n_classes)
        nn.init.uniform_(self.embedding.weight, -0.25, 0.25)
        self._zero_padding()

    @classmethod
    def from_vectors(cls, vectors: Any, n_classes: int, **options: Any) -> SentenceCNN:
        """Build the network on pretrained word vectors (GloVe, word2vec), which training may change.

        Parameters
        ----------
        vectors
            An array or tensor `[vocab_size, dim]`, one row per token id. A word without a vector is a row of NaN:
            it is drawn uniformly with the variance of the others, as the paper suggests. The row of `padding_id`
            becomes zero.
        n_classes
            How many classes there are.
        options
            The other parameters of `SentenceCNN`.

        >>> glove = torch.tensor([[torch.nan, torch.nan], [0.1, 0.2], [0.3, -0.4]])
        >>> SentenceCNN.from_vectors(glove, 2).embedding.weight[:2]
        tensor([[0.0000, 0.0000],
                [0.1000, 0.2000]], grad_fn=<SliceBackward0>)
        """
        table = _checked(vectors)
        model = cls(len(table), n_classes, dim=table.shape[1], **options)
        model.set_vectors(table)
        return model

    @torch.no_grad()
    def set_vectors(self, vectors: object) -> None:
        """Start from pretrained word vectors `[vocab_size, dim]`, as `from_vectors` says."""
        table = _checked(vectors)
        if table.shape != self.embedding.weight.shape:
            expected = f"of shape {list(self.embedding.weight.shape)}, [vocab_size, dim]"
            raise ArgumentError("vectors", list(table.shape), expected)
        missing = table.isnan().any(1)
        bound = float(table[~missing].var(correction=0).mul(3).sqrt())  # U(-a, a) has the variance a²/3
        unknown = nn.init.uniform_(torch.empty_like(table), -bound, bound)
        self.embedding.weight.copy_(torch.where(missing[:, None], unknown, table))
        self._zero_padding()

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return the logits `[B, n_classes]` of token ids `[B, L]`."""
        words = nn.functional.pad(self.embedding(input_ids).transpose(1, 2), (self.margin, self.margin))
        features = [convolution(words).relu().amax(2) for convolution in self.convolutions]
        logits: Tensor = self.classifier(self.dropout(torch.cat(features, dim=1)))
        return logits

    @torch.no_grad()
    def clip_norms(self) -> None:
        """Shorten the weights of each class to at most `max_norm`; call it after every optimizer step."""
        weight = self.classifier.weight
        weight.copy_(weight.renorm(2, 0, self.max_norm))

    @torch.no_grad()
    def _zero_padding(self) -> None:
        self.embedding.weight[self.embedding.padding_idx].zero_()


def _checked(vectors: object) -> Tensor:
    table = torch.as_tensor(vectors, dtype=torch.float32)
    if table.ndim != 2 or not len(table):
        raise ValueError(f"vectors must have shape [vocab_size, dim], got {list(table.shape)}")
    missing = table.isnan().any(1)
    if bool(missing.all()) or not bool(table[~missing].isfinite().all()):
        raise ValueError("vectors must be finite, with NaN only in the rows of words without a vector")
    return table
