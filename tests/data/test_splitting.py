"""Splits: stratified, disjoint, complete, from the seed alone."""

from __future__ import annotations

import tracemalloc
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal._random import seed_from
from vicinal.data import splitting, stratified_split, stratified_subset
from vicinal.data.splitting import fold_numbers, grouped_split, random_subset, split_positions

labels = st.lists(st.integers(0, 4), min_size=1, max_size=120)


def test_random_subsets_have_every_class_and_no_other_rule() -> None:
    given = [0] * 90 + [1] * 10
    drawn = [random_subset(given, 20, seed=seed) for seed in range(400)]
    shares = [sum(given[i] for i in subset) for subset in drawn]
    assert len({tuple(subset) for subset in drawn}) == 400
    assert min(shares) >= 1
    assert len(set(shares)) > 3
    # Hypergeometric, given that it is not 0 (which has probability 0.095): 2 / (1 - 0.095) on average.
    assert sum(shares) / 400 == pytest.approx(2 / 0.905, abs=0.25)
    with pytest.raises(ValueError, match=r"train_size must be between 2, .*and 100"):
        random_subset(given, 101)
    with pytest.raises(ValueError, match="all left out a class: pass subset='stratified'"):
        random_subset([0] * 100_000 + [1], 2)


@given(labels, st.sampled_from([0.0, 0.1, 0.15, 0.3]), st.sampled_from([0.0, 0.15, 0.4]), st.integers(0, 3))
def test_every_sample_is_in_one_split_and_every_class_in_training(y, val, test, seed):
    parts = stratified_split(y, val=val, test=test, seed=seed)
    assert sorted(i for part in parts.values() for i in part) == list(range(len(y)))
    for k, n in Counter(y).items():
        here = {name: sum(y[i] == k for i in part) for name, part in parts.items()}
        assert here["train"] >= 1
        assert abs(here["test"] - test * n) <= 1
        assert here["test"] >= 1 or test == 0 or n < 2
        assert here["val"] >= 1 or val == 0 or n < 3
        if n > 10:
            assert abs(here["val"] - val * n) <= 1
    assert parts == stratified_split(y, val=val, test=test, seed=seed)


def test_seeds_differ_and_numbers_are_counts():
    y = [k % 2 for k in range(200)]
    assert stratified_split(y, val=0.2, test=0.2, seed=0) != stratified_split(y, val=0.2, test=0.2, seed=1)
    parts = stratified_split(y, val=20, test=50)
    assert {name: len(part) for name, part in parts.items()} == {"train": 130, "val": 20, "test": 50}


@given(labels, st.data())
def test_a_subset_has_its_size_and_every_class(y, data):
    size = data.draw(st.integers(len(set(y)), len(y)))
    chosen = stratified_subset(y, size, seed=1)
    assert len(set(chosen)) == len(chosen) == size
    assert {y[i] for i in chosen} == set(y)
    assert chosen == stratified_subset(y, size, seed=1)


def test_a_subset_keeps_proportions():
    y = [0] * 600 + [1] * 300 + [2] * 100
    assert Counter(y[i] for i in stratified_subset(y, 50)) == {0: 30, 1: 15, 2: 5}
    assert stratified_subset(y, 50, seed=0) != stratified_subset(y, 50, seed=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"val": 0.6, "test": 0.5}, "must leave samples to train on"),
        ({"val": 1.0, "test": 0.0}, "val must be a share below 1, or a number of samples"),
        ({"val": -0.1, "test": 0.0}, r"val must be a number in \[0, 1\], got -0.1"),
        ({"val": 0.1, "test": -3}, "test must be an integer of at least 0, got -3"),
    ],
)
def test_bad_shares_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        stratified_split([0, 1] * 10, **arguments)


@pytest.mark.parametrize("size", [1, 21])
def test_bad_subset_sizes_are_named(size):
    with pytest.raises(ValueError, match=r"train_size must be between 2, .*and 20"):
        stratified_subset([0, 1] * 10, size)


def test_folds_do_not_depend_on_the_numbers_of_groups():
    """Groups of copies are numbered by hashes, which every process draws anew: an audit goes on in another one."""
    y, group = np.arange(60) % 3 % 2, np.arange(60) // 2
    folds = fold_numbers(y, 5, groups=group)
    for seed in range(3):
        names = np.random.default_rng(seed).permutation(30)
        assert fold_numbers(y, 5, groups=names[group]).tolist() == folds.tolist()
    assert fold_numbers(y, 5, groups=np.arange(60)).tolist() == fold_numbers(y, 5).tolist()


def slow_split(y: list[int], *, val: float, test: float, seed: int) -> dict[str, list[int]]:
    """A split by loops: each class in the order of one permutation, the first to test on, the next to validate on."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed_from("split", seed))).tolist()
    parts: dict[str, list[int]] = {"train": [], "val": [], "test": []}
    for k in sorted(set(y)):
        members = [i for i in order if y[i] == k]
        n_test = min(max(int(test * len(members) + 0.5), int(test > 0)), len(members) - 1)
        n_val = min(max(int(val * len(members) + 0.5), int(val > 0)), len(members) - 1 - n_test)
        for name, some in (
            ("test", members[:n_test]),
            ("val", members[n_test : n_test + n_val]),
            ("train", members[n_test + n_val :]),
        ):
            parts[name] += some
    return {name: sorted(part) for name, part in parts.items()}


@given(labels, st.sampled_from([1, 1000, -7]), st.integers(1, 50), st.integers(0, 3))
def test_a_split_is_that_of_loops_however_many_samples_are_sorted_at_a_time(y, factor, rows, seed):
    y = [factor * k for k in y]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "_ROWS", rows)
        assert stratified_split(y, val=0.2, test=0.3, seed=seed) == slow_split(y, val=0.2, test=0.3, seed=seed)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 25)), min_size=2, max_size=80), st.integers(0, 3))
def test_a_split_of_groups_keeps_them_whole_and_each_class_in_its_share(pairs, seed):
    y, groups = np.array([k for k, _ in pairs], np.int8), np.array([2**40 * g for _, g in pairs])
    members: defaultdict[int, list[int]] = defaultdict(list)  # in the order in which groups come
    for i, g in enumerate(groups.tolist()):
        members[g].append(i)
    found = {name: part.tolist() for name, part in grouped_split(y, groups, val=0.2, test=0.3, seed=seed).items()}
    assert sorted(i for part in found.values() for i in part) == list(range(len(y)))
    part_of = {i: name for name, part in found.items() for i in part}
    assert all(len({part_of[i] for i in rows}) == 1 for rows in members.values())
    majority = {
        g: min(Counter(y[rows].tolist()).items(), key=lambda pair: (-pair[1], pair[0]))[0]
        for g, rows in members.items()
    }
    for k in set(majority.values()):
        mine = [rows for g, rows in members.items() if majority[g] == k]
        n, largest = sum(map(len, mine)), max(map(len, mine))
        parts = Counter(part_of[rows[0]] for rows in mine)
        assert set(parts) >= set(["train", "test", "val"][: len(mine)])
        for name, share in (("val", 0.2), ("test", 0.3)):
            # At most one group too many or too few, and one more where each split needs a group.
            assert abs(sum(len(rows) for rows in mine if part_of[rows[0]] == name) - share * n) <= 2 * largest


def test_a_split_takes_few_bytes_a_sample():
    n, random = 1_500_000, np.random.default_rng(0)
    y, copies = random.integers(0, 3, n).astype(np.int8), np.arange(n, dtype=np.int32)
    copies[1000:2000] = copies[:1000]
    tracemalloc.start()
    peaks = []
    for split in (lambda: split_positions(y, val=0.1, test=0.1, seed=0),
                  lambda: grouped_split(y, copies, val=0.1, test=0.1, seed=0)):  # fmt: skip
        tracemalloc.reset_peak()
        parts = split()
        peaks.append(tracemalloc.get_traced_memory()[1] / n)
        assert {part.dtype for part in parts.values()} == {np.dtype(np.int32)}
        del parts
    tracemalloc.stop()
    # It was 21 and 88 bytes.
    assert peaks[0] < 15
    assert peaks[1] < 35


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("largest", "size"), [(6000, 3000), (15_000, None)])
def test_groups_of_all_sizes_leave_every_class_its_share(seed, largest, size):
    """A few rows of the frequent class are repeated thousands of times, as in logs and surveys."""
    random = np.random.default_rng(seed)
    y = (random.random(20_000) < 0.01).astype(int)
    groups = np.arange(20_000)
    plain = np.flatnonzero(y == 0)
    groups[plain[:largest]] = plain[0]
    groups[plain[16_000:18_000]] = plain[16_000 + np.arange(2000) // 2 * 2]
    parts = grouped_split(y, groups, val=0.15, test=0.15, seed=seed)
    for name in ("val", "test"):
        assert size is None or len(parts[name]) == pytest.approx(size, abs=3)
        assert y[parts[name]].mean() == pytest.approx(y.mean(), abs=2 / len(parts[name]))
    sides = [set(groups[part].tolist()) for part in parts.values()]
    assert sum(map(len, sides)) == len(set().union(*sides))
    pairs = np.isin(np.arange(20_000), plain[16_000:18_000])
    alone = ~pairs & (y == 0) & (np.bincount(groups, minlength=20_000)[groups] == 1)
    # Repeated rows are in the test set, too, as often as others, of which the most are in the training set.
    assert pairs[parts["test"]].sum() / 2000 == pytest.approx(alone[parts["test"]].sum() / alone.sum(), abs=0.003)
    assert alone[parts["train"]].sum() >= 0.4 * alone.sum()


@pytest.mark.parametrize("n_groups", [20, 60, 90, 200])
@pytest.mark.parametrize("seed", range(3))
def test_groups_of_many_sizes_and_several_classes_give_each_split_its_share(n_groups, seed):
    """As patients with several rows each: hardly two groups are equally large, and none is of one class."""
    random = np.random.default_rng(seed)
    groups, y = random.integers(0, n_groups, 900), random.integers(0, 2, 900)
    parts = grouped_split(y, groups, val=0.15, test=0.15, seed=seed)
    largest = int(np.bincount(groups).max())
    for name in ("val", "test"):
        assert len(parts[name]) == pytest.approx(135, abs=largest)


def test_one_group_of_most_rows_leaves_half_of_the_others_in_training():
    random = np.random.default_rng(0)
    groups = np.where(random.random(3000) < 0.6, 0, random.integers(1, 100, 3000))
    parts = grouped_split(np.zeros(3000, int), groups, val=0.15, test=0.15, seed=0)
    others = (groups > 0).sum()
    assert (groups[parts["train"]] > 0).sum() >= 0.45 * others
    assert len(parts["test"]) == pytest.approx(others / 4, abs=15)
