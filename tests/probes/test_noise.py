from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from vicinal.probes import noise as module
from vicinal.probes.noise import gaussian_like


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n=50, dtype=torch.float32):
    x = torch.randn(n, 3, 6, 5, generator=seeded(1), dtype=torch.float64)
    x = x * torch.tensor([0.5, 1.0, 4.0])[:, None, None] + torch.tensor([-2.0, 0.0, 100.0])[:, None, None]
    return x.to(dtype)


@pytest.mark.parametrize("chunk", [1, 100, 2**22])
def test_each_channel_has_the_mean_and_variance_of_the_set(chunk, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", chunk)
    x = images()
    noise = gaussian_like(TensorDataset(x, torch.zeros(50)))
    for channel in range(3):
        values = [float(v) for image in x for v in image[channel].flatten()]
        mean = math.fsum(values) / len(values)
        assert float(noise.mean[channel]) == pytest.approx(mean)
        assert float(noise.std[channel]) == pytest.approx(math.sqrt(math.fsum((v - mean) ** 2 for v in values) / 1500))


def test_the_noise_has_them_too_and_is_normal():
    stats = pytest.importorskip("scipy.stats")
    noise = gaussian_like(TensorDataset(images()), 400, generator=seeded())
    drawn = torch.stack(list(noise)).double()
    assert drawn.shape == (400, 3, 6, 5)
    for channel in range(3):
        standard = (drawn[:, channel].flatten() - noise.mean[channel]) / noise.std[channel]
        assert stats.kstest(standard.numpy(), "norm").pvalue > 1e-3
    # Neighbours are independent: noise has no structure.
    flat = (drawn - noise.mean[:, None, None]) / noise.std[:, None, None]
    assert abs(float((flat[..., 1:] * flat[..., :-1]).mean())) < 0.02


def test_vectors_are_matched_feature_by_feature_and_waveforms_as_a_whole():
    x = torch.tensor([[0.0, 10.0], [2.0, 30.0]])
    assert gaussian_like(TensorDataset(x)).mean.tolist() == [1, 20]
    assert gaussian_like(TensorDataset(x)).std.tolist() == [1, 10]
    whole = gaussian_like(TensorDataset(x), per="dataset")
    assert whole.mean.tolist() == [10.5]
    assert float(whole.std) == pytest.approx(float(np.std([0, 10, 2, 30])))
    assert whole[0].shape == (2,)


def test_a_large_offset_does_not_swallow_the_variance():
    x = torch.randn(200, 4, generator=seeded(), dtype=torch.float64)
    assert gaussian_like(TensorDataset(x + 1e8)).std.tolist() == pytest.approx(
        x.std(0, correction=0).tolist(), rel=1e-6
    )


def test_an_item_is_a_function_of_the_seed_and_its_index():
    data = TensorDataset(images())
    noise, again = (gaussian_like(data, 9, generator=seeded(2)) for _ in range(2))
    assert torch.equal(noise[4], again[4])
    assert torch.equal(noise[-1], noise[8])
    assert not torch.equal(noise[4], noise[5])
    assert not torch.equal(noise[4], gaussian_like(data, 9, generator=seeded(3))[4])
    with pytest.raises(IndexError):
        noise[9]


def test_it_loads_in_batches_that_do_not_divide():
    noise = gaussian_like(TensorDataset(images()), 10, generator=seeded())
    batches = list(DataLoader(noise, batch_size=4))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert torch.equal(torch.cat(batches), torch.stack([noise[i] for i in range(10)]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_noise_has_the_type_of_the_inputs(dtype):
    noise = gaussian_like(TensorDataset(images(dtype=dtype)))
    assert noise[0].dtype == dtype
    assert len(noise) == 50


def test_global_generators_are_not_moved_by_a_generator_or_an_augmenting_dataset():
    class Augmenting(Dataset):
        def __len__(self):
            return 5

        def __getitem__(self, index):
            return torch.randn(2) + np.random.rand()  # noqa: NPY002

    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    noise = gaussian_like(Augmenting(), generator=seeded())
    noise[0]
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    torch.manual_seed(1)
    first = gaussian_like(TensorDataset(images()))
    torch.manual_seed(1)
    assert torch.equal(gaussian_like(TensorDataset(images()))[0], first[0])


def test_plain_lists_and_subsets_are_datasets():
    x = images(4)
    assert torch.equal(gaussian_like(list(x)).mean, gaussian_like(Subset(TensorDataset(x), range(4))).mean)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


HOSTILE = {
    "mapping": ([{"input_ids": torch.zeros(2)}], "dataset must hold tensors, .*item 0 is dict"),
    "array": ([(np.zeros(2), 1)], "item 0 is a tuple that starts with ndarray"),
    "integers": ([torch.zeros(2, dtype=torch.uint8)], "floating inputs, item 0 is torch.uint8"),
    "shapes": ([torch.zeros(2), torch.zeros(3)], r"one shape and type, got \[2\] torch.float32 in item 0 and \[3\]"),
    "scalar": ([torch.tensor(1.0)], "at least one number and dimension"),
    "nothing in it": ([torch.zeros(0, 2)], "at least one number and dimension"),
    "nan": ([torch.tensor([math.nan])], "finite inputs, got NaN or inf in items 0 to 0"),
    "empty": ([], "dataset is empty"),
    "stream": (Stream(), "length and items by index, got Stream"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_datasets_are_refused_by_name(name):
    data, match = HOSTILE[name]
    with pytest.raises((ValueError, TypeError), match=match):
        gaussian_like(data)


def test_hostile_arguments_are_refused_by_name():
    data = TensorDataset(images(2))
    with pytest.raises(ValueError, match="n must be"):
        gaussian_like(data, 0)
    with pytest.raises(ValueError, match="per must be one of"):
        gaussian_like(data, per="pixel")
