"""Kim's sentence CNN against loops, its padding and norms, and mixup at its word vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vicinal import LogitMix, ManifoldMixup, Mixup, SequenceMixup
from vicinal.models import SentenceCNN


def make(**changes):
    torch.manual_seed(0)
    return SentenceCNN(20, 3, **{"dim": 6, "maps": 4, **changes}).eval()


def by_loops(model: SentenceCNN, ids: list[int]) -> torch.Tensor:
    zero = torch.zeros(6)
    words = [zero] * 5 + [model.embedding.weight[i] for i in ids] + [zero] * 5
    features = []
    for convolution in model.convolutions:
        width = convolution.kernel_size[0]
        for weight, bias in zip(convolution.weight, convolution.bias, strict=True):
            windows = [
                sum(weight[:, k] @ words[start + k] for k in range(width)) + bias
                for start in range(len(words) - width + 1)
            ]
            features.append(max(torch.relu(value) for value in windows))
    return model.classifier(torch.stack(features))


def test_the_logits_by_loops():
    model = make()
    for ids in ([4, 7, 1, 9, 2, 2], [3]):  # also shorter than any filter
        torch.testing.assert_close(model(torch.tensor([ids]))[0], by_loops(model, ids))


def test_the_papers_sizes_are_the_defaults():
    model = SentenceCNN(50, 2)
    assert [c.kernel_size[0] for c in model.convolutions] == [3, 4, 5]
    assert [c.out_channels for c in model.convolutions] == [100] * 3
    assert model.embedding.weight.shape == (50, 300)
    assert model.embedding.weight.requires_grad
    assert model.dropout.p == 0.5
    assert model.max_norm == 3.0
    assert model.classifier.in_features == 300


def test_padding_never_changes_a_logit():
    model, ids = make(), torch.tensor([[4, 7, 1], [3, 5, 9]])
    for extra in (1, 4, 30):
        padded = torch.cat([ids, torch.zeros(2, extra, dtype=torch.int64)], dim=1)
        torch.testing.assert_close(model(padded), model(ids))


def test_norms_are_clipped_after_a_step_and_padding_stays_zero():
    model = make(max_norm=0.5)
    short = model.classifier.weight[1].detach().clone() * 0.1
    with torch.no_grad():
        model.classifier.weight[1] = short
        model.classifier.weight[0] *= 100
    direction = torch.nn.functional.normalize(model.classifier.weight[0].detach(), dim=0)
    optimizer = torch.optim.Adadelta(model.parameters())
    model.clip_norms()
    norms = model.classifier.weight.norm(dim=1)
    assert norms[0].item() == pytest.approx(0.5, rel=1e-4)
    torch.testing.assert_close(model.classifier.weight[0].detach(), 0.5 * direction, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(model.classifier.weight[1].detach(), short)  # short ones are left alone
    ids = torch.tensor([[4, 7, 0, 0], [3, 5, 9, 0]])
    ManifoldMixup(layers=["embedding"])(model, ids, torch.tensor([0, 2])).backward()
    optimizer.step()
    model.clip_norms()
    assert (model.classifier.weight.norm(dim=1) <= 0.5 + 1e-5).all()
    assert (model.embedding.weight[0] == 0).all()


def test_word_vectors_are_taken_and_missing_ones_drawn_with_their_variance():
    rng = np.random.default_rng(0)
    vectors = 0.4 * rng.standard_normal((400, 50))
    vectors[200:] = np.nan
    model = SentenceCNN.from_vectors(vectors, 2, padding_id=3, maps=10)
    weight = model.embedding.weight.detach()
    assert torch.equal(weight[:3], torch.tensor(vectors[:3], dtype=torch.float32))
    assert (weight[3] == 0).all()
    assert weight[200:].std().item() == pytest.approx(0.4, rel=0.03)
    assert weight[200:].abs().max() <= 0.4 * 3**0.5 * 1.05
    assert model.embedding.weight.requires_grad
    assert model.convolutions[0].out_channels == 10


@pytest.mark.parametrize(
    "objective", [ManifoldMixup(layers=["embedding"]), SequenceMixup.input(), SequenceMixup.cls()], ids=repr
)
def test_mixup_at_the_word_vectors(objective):
    model, ids, y = make(), torch.randint(1, 20, (5, 9)), torch.tensor([0, 1, 2, 0, 1])
    ids[2, 4:] = 0
    plan = objective.draw(model, ids, y, generator=torch.Generator().manual_seed(1))
    got = objective.forward(model, ids, plan)
    padded = torch.nn.functional.pad

    def features(words):
        words = padded(words.transpose(1, 2), (5, 5))
        return torch.cat([c(words).relu().amax(2) for c in model.convolutions], dim=1)

    words, other = model.embedding(ids), model.embedding(ids[plan.partner])
    lam = plan.lam[:, None]
    if objective == SequenceMixup.cls():
        want = model.classifier(lam * features(words) + (1 - lam) * features(other))
    else:
        want = model.classifier(features(lam[..., None] * words + (1 - lam[..., None]) * other))
    torch.testing.assert_close(got, want)
    if objective != SequenceMixup.cls():
        assert LogitMix(objective)(model, ids, y).isfinite()
    torch.testing.assert_close(objective(model, {"input_ids": ids}, y).isfinite(), torch.tensor(True))


def test_token_ids_cannot_be_mixed_as_they_are():
    with pytest.raises(ValueError, match="mix token ids at a layer"):
        Mixup(alpha=1.0)(make(), torch.randint(20, (4, 5)), torch.tensor([0, 1, 2, 0]))


def test_it_learns_which_word_is_there():
    torch.manual_seed(0)
    model = SentenceCNN(20, 2, dim=16, maps=10)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0, rho=0.95, eps=1e-6)
    objective = ManifoldMixup(layers=["embedding"], alpha=0.4)
    y = torch.arange(2).repeat(25)
    for _ in range(60):
        ids = torch.randint(3, 20, (50, 12))
        ids[torch.arange(50), torch.randint(12, (50,))] = 1 + y
        optimizer.zero_grad()
        objective(model, ids, y).backward()
        optimizer.step()
        model.clip_norms()
    assert (model.eval()(ids).argmax(1) == y).float().mean() > 0.95


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"widths": []}, "widths must hold at least one"),
        ({"widths": 3}, "widths must hold at least one filter width, got 3"),
        ({"dim": 0}, "dim must be an integer of at least 1, got 0"),
        ({"padding_id": 1000}, "padding_id must be below vocab_size=.*, got 1000"),
        ({"widths": [0]}, "widths must be an integer of at least 1, got 0"),
        ({"maps": 0}, "maps must be an integer of at least 1, got 0"),
        ({"dropout": 2}, r"dropout must be a number in \[0, 1\], got 2"),
        ({"max_norm": 0}, "max_norm must be a number above 0, got 0"),
    ],
)
def test_bad_sizes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


@pytest.mark.parametrize(("vocab_size", "n_classes", "name"), [(0, 2, "vocab_size"), (20, 0, "n_classes")])
def test_no_words_and_no_classes_are_named(vocab_size, n_classes, name):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got 0"):
        SentenceCNN(vocab_size, n_classes)


def test_bad_vectors_are_named():
    with pytest.raises(ValueError, match=r"vectors must have shape \[vocab_size, dim\], got \[3\]"):
        SentenceCNN.from_vectors(torch.zeros(3), 2)
    with pytest.raises(ValueError, match="vectors must be finite"):
        SentenceCNN.from_vectors(torch.full((3, 2), torch.nan), 2)
    with pytest.raises(ValueError, match="vectors must be finite"):
        SentenceCNN.from_vectors(torch.full((3, 2), torch.inf), 2)
