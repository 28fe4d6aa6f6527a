"""AUM against the paper's formula by loops; merging, saving, unseen samples; balanced batches."""

from __future__ import annotations

import copy
import io
import math
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from tests.processes import in_processes
from vicinal import AUM, BalancedBatchSampler
from vicinal.objectives.guided.aum import margins
from vicinal.objectives.guided.neighbours import directions

N, K, EPOCHS = 11, 4, 3


def run(seed=0, n=N, epochs=EPOCHS, batch=4):
    """A training run's logits: (epoch, index, logits) of each batch, in a new order each epoch."""
    g = torch.Generator().manual_seed(seed)
    for epoch in range(epochs):
        for index in torch.randperm(n, generator=g).split(batch):
            yield epoch, index, torch.randn(len(index), K, generator=g)


LABELS = torch.arange(N) % K


def slow(steps):
    """Area under the margin by loops, from the formula."""
    found = {}
    for epoch, index, logits in steps:
        for i, z in zip(index.tolist(), logits.tolist(), strict=True):
            y = int(LABELS[i])
            found.setdefault(i, {})[epoch] = z[y] - max(z[k] for k in range(K) if k != y)
    return {i: sum(by_epoch.values()) / len(by_epoch) for i, by_epoch in found.items()}


def tracked(steps, **kwargs):
    aum = AUM(N, **kwargs)
    for epoch, index, logits in steps:
        aum.update(logits, LABELS[index], index, epoch=epoch)
    return aum


@pytest.mark.parametrize("seed", range(3))
def test_aum_equals_the_formula(seed):
    aum, expected = tracked(run(seed)), slow(run(seed))
    torch.testing.assert_close(aum.values(), torch.tensor([expected[i] for i in range(N)], dtype=torch.float64))
    assert aum.counts.tolist() == [EPOCHS] * N
    assert aum.seen.all()
    torch.testing.assert_close(aum.values([3, 0]), aum.values()[[3, 0]])


def test_aum_agrees_with_the_aum_package(tmp_path):
    package = pytest.importorskip("aum", reason="the aum package is installed by make bench")
    peer, sums = package.AUMCalculator(str(tmp_path)), {}
    for _, index, logits in run():
        sums |= peer.update(logits, LABELS[index], index.tolist())
    torch.testing.assert_close(
        tracked(run()).values(), torch.tensor([sums[i].aum for i in range(N)], dtype=torch.float64)
    )


@given(st.integers(1, 5), st.integers(2, 6), st.integers(0, 2**31))
def test_margins_by_loops(n, k, seed):
    g = torch.Generator().manual_seed(seed)
    logits, labels = torch.randn(n, k, generator=g), torch.randint(k, (n,), generator=g)
    expected = [
        z[y] - max(v for j, v in enumerate(z) if j != y) for z, y in zip(logits.tolist(), labels.tolist(), strict=True)
    ]
    torch.testing.assert_close(margins(logits, labels), torch.tensor(expected))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_float_types_and_label_types(dtype):
    logits = torch.tensor([[1.0, 3.0], [2.5, 2.0]], dtype=dtype, requires_grad=True)
    aum = AUM(2)
    aum.update(logits, torch.tensor([0, 0], dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32), epoch=0.7)
    assert aum.values().tolist() == [0.5, -2.0]


def test_a_sample_counts_once_per_epoch():
    aum = AUM(3)
    logits = torch.tensor([[1.0, 0.0], [5.0, 0.0], [3.0, 0.0]])
    aum.update(logits, torch.zeros(3).long(), torch.tensor([0, 1, 0]), epoch=0.1)  # twice in one batch
    assert aum.values([0, 1]).tolist() == [3.0, 5.0]
    aum.update(logits[:1], torch.zeros(1).long(), torch.tensor([1]), epoch=0.9)  # and again later in the epoch
    assert aum.values([0, 1]).tolist() == [3.0, 1.0]
    assert aum.counts.tolist() == [1, 1, 0]


def test_a_sample_never_seen_has_no_aum_and_says_so():
    aum = AUM(20)
    assert not aum.seen.any()
    with pytest.raises(ValueError, match=r"20 of 20 samples .* 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …"):
        aum.values()
    aum.update(torch.eye(3), torch.arange(3), torch.tensor([4, 0, 9]), epoch=0)
    assert aum.seen.nonzero()[:, 0].tolist() == [0, 4, 9]
    assert aum.values(aum.seen.nonzero()[:, 0]).tolist() == [1.0, 1.0, 1.0]
    assert aum.values(aum.seen).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="1 of 2 samples was never seen and has no AUM: index 5"):
        aum.values([4, 5])


@pytest.mark.parametrize("saliency", [False, True])
def test_survives_save_and_resume(saliency):
    steps = list(run())
    half = tracked(steps[: len(steps) // 2], saliency=saliency)
    file = io.BytesIO()
    torch.save(half.state_dict(), file)
    file.seek(0)
    resumed = AUM(N, saliency=saliency)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for epoch, index, logits in steps[len(steps) // 2 :]:
        resumed.update(logits, LABELS[index], index, epoch=epoch)
    whole = tracked(steps, saliency=saliency)
    assert torch.equal(resumed.values(), whole.values())
    assert all(
        torch.equal(a, b) for a, b in zip(resumed.state_dict().values(), whole.state_dict().values(), strict=True)
    )
    assert all(isinstance(t, torch.Tensor) for t in whole.state_dict().values())
    with pytest.raises(ValueError, match="not one of 5 samples"):
        AUM(5).load_state_dict(whole.state_dict())


def test_a_state_is_a_copy():
    aum = tracked(run(), saliency=True)
    state = copy.deepcopy(saved := aum.state_dict())
    aum.update(torch.ones(1, K), torch.zeros(1).long(), torch.zeros(1).long(), epoch=0)
    assert all(torch.equal(a, b) for a, b in zip(state.values(), saved.values(), strict=True))


@pytest.mark.parametrize("saliency", [False, True])
def test_merged_shards_equal_the_whole_in_any_order(saliency):
    steps = list(run())
    shards = [tracked(steps[r::3], saliency=saliency) for r in range(3)]
    whole = tracked(steps, saliency=saliency)
    for order in ((0, 1, 2), (2, 0, 1)):
        merged = shards[order[0]] + shards[order[1]] + shards[order[2]]
        assert torch.equal(merged.values(), whole.values())
        if saliency:
            assert torch.equal(merged.table.directions, whole.table.directions)
            assert torch.equal(merged.table.labels, LABELS)
    with pytest.raises(ValueError, match="same samples"):
        whole + AUM(3, saliency=saliency)


def test_the_saliency_table_holds_the_last_epoch():
    aum = tracked(run(), saliency=True)
    for epoch, index, logits in run():
        if epoch == EPOCHS - 1:
            torch.testing.assert_close(aum.table.directions[index], directions(logits, LABELS[index]).float())
    assert tracked(run()).table is None


def worker(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    aum = AUM(N, saliency=True)
    for i, (epoch, index, logits) in enumerate(run()):
        # As a distributed sampler pads: the first sample of each batch is met by both ranks.
        part = index if i % 2 == rank else index[:1]
        aum.update(logits[: len(part)] + 0.0, LABELS[part], part, epoch=epoch)
        if i == 3:
            aum.all_reduce()  # merging early and again changes nothing
    if rank == 1:
        aum.update(torch.ones(1, K), LABELS[:1], torch.tensor([0]), epoch=7)  # an epoch only one rank knows
    aum.all_reduce()
    aum.all_reduce()
    torch.save(aum.state_dict(), f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def test_two_processes_merge_to_the_whole(tmp_path):
    in_processes(2, worker, str(tmp_path))
    expected = tracked(run(), saliency=True)
    expected.update(torch.ones(1, K), LABELS[:1], torch.tensor([0]), epoch=7)
    for rank in range(2):
        state = torch.load(Path(tmp_path, f"{rank}.pt"), weights_only=True)
        for name, t in expected.state_dict().items():
            torch.testing.assert_close(state[name], t, rtol=0, atol=0, equal_nan=True, msg=name)


def test_without_processes_all_reduce_does_nothing():
    aum = tracked(run())
    before = aum.values()
    aum.all_reduce()
    assert torch.equal(aum.values(), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"index": torch.tensor([0, N])}, rf"index must be in \[0, {N - 1}\] for {N} samples, got {N}"),
        ({"index": torch.tensor([-1, 0])}, r"got -1"),
        ({"index": torch.tensor([0])}, r"index must be integers \[2\]"),
        ({"index": torch.tensor([0.0, 1.0])}, "integers"),
        ({"index": None}, "pass index="),
        ({"labels": torch.tensor([0, K])}, rf"labels must be in \[0, {K - 1}\] for {K} logits, got {K}"),
        ({"labels": torch.tensor([-100, 0])}, "got -100"),
        ({"labels": torch.rand(2, K)}, "labels must be integers"),
        ({"logits": torch.rand(2, 1)}, "K of at least 2"),
        ({"logits": torch.tensor([[math.nan] * K, [0.0] * K])}, "finite"),
        ({"epoch": -1}, "epoch must be a number of at least 0"),
    ],
)
def test_mistakes_are_named(change, message):
    arguments = {"logits": torch.randn(2, K), "labels": torch.tensor([0, 1]), "index": torch.tensor([0, 1]), "epoch": 0}
    arguments |= change
    with pytest.raises(ValueError, match=message):
        AUM(N).update(**arguments)


def test_what_is_no_tensor_is_named():
    with pytest.raises(TypeError, match=r"index must be a tensor of integers \[2\], got list"):
        AUM(N).update(torch.randn(2, K), torch.tensor([0, 1]), [0, 1], epoch=0)
    with pytest.raises(TypeError, match="high must be a bool tensor"):
        BalancedBatchSampler([True, False], 2)


def masks():
    return st.lists(st.booleans(), min_size=2, max_size=40).filter(lambda m: 0 < sum(m) < len(m))


@given(masks(), st.integers(2, 9), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_batches_are_balanced_complete_and_repeatable(mask, batch_size, seed, epoch, drop_last):
    high = torch.tensor(mask)
    sampler = BalancedBatchSampler(high, batch_size, seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    assert batches == list(sampler)
    for batch in batches[:-1]:
        assert len(batch) == batch_size
    for batch in batches:
        assert abs(2 * int(high[batch].sum()) - len(batch)) <= 1
    if not drop_last:
        seen = Counter(i for batch in batches for i in batch)
        assert set(seen) == set(range(len(mask)))
        for category in (True, False):  # in its category no sample comes twice more than another
            counts = [seen[i] for i in range(len(mask)) if mask[i] is category]
            assert max(counts) - min(counts) <= 1
    sizes = Counter(map(len, batches))
    assert sizes[batch_size] >= len(batches) - (not drop_last)


def test_epochs_and_seeds_give_different_orders():
    high = torch.arange(40) % 2 == 0
    orders = set()
    for seed in range(3):
        sampler = BalancedBatchSampler(high, 8, seed=seed)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            orders.add(str(list(sampler)))
    assert len(orders) == 9


@given(masks(), st.integers(2, 5), st.integers(1, 4))
def test_ranks_share_the_batches(mask, batch_size, world):
    high = torch.tensor(mask)
    whole = list(BalancedBatchSampler(high, batch_size))
    shards = [BalancedBatchSampler(high, batch_size, num_replicas=world, rank=r) for r in range(world)]
    assert len({len(list(shard)) for shard in shards}) == 1
    assert all(len(list(shard)) == len(shard) for shard in shards)
    met = [batch for step in zip(*shards, strict=True) for batch in step]
    assert met[: len(whole)] == whole


def test_frameworks_find_the_epoch_to_set():
    """Lightning asks `batch_sampler.sampler`; accelerate does too where it has wrapped it for several processes."""
    from accelerate.data_loader import prepare_data_loader

    high = torch.arange(40) % 2 == 0
    loader = torch.utils.data.DataLoader(torch.arange(40), batch_sampler=BalancedBatchSampler(high, 4))
    shards = [prepare_data_loader(loader, num_processes=2, process_index=rank) for rank in range(2)]
    orders = []
    for epoch in range(2):
        for shard in shards:
            shard.set_epoch(epoch)
        orders.append([batch.tolist() for shard in shards for batch in shard])
        assert sorted(i for batch in orders[-1] for i in batch) == list(range(40))
    assert orders[0] != orders[1]


def test_the_sampler_works_in_a_data_loader():
    high = torch.arange(10) < 4
    loader = torch.utils.data.DataLoader(torch.arange(10), batch_sampler=BalancedBatchSampler(high, 4))
    assert len(loader) == len(list(loader)) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"high": torch.ones(3)}, "bool mask"),
        ({"high": torch.ones(3).bool()}, "both categories"),
        ({"batch_size": 1}, "at least 2"),
        ({"rank": 1}, "below num_replicas"),
    ],
)
def test_sampler_mistakes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        BalancedBatchSampler(**{"high": torch.tensor([True, False]), "batch_size": 2} | arguments)
