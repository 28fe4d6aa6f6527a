"""Stratified splits: every class in the same proportions everywhere, from a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from vicinal._checks import Argument, ArgumentError, Sentence, integer
from vicinal._random import permutation, seed_from
from vicinal.data.options import share_of

#: Class numbers, in the smallest type that holds them: with a hundred million rows every byte counts.
Labels: TypeAlias = NDArray[np.signedinteger]
#: Places of samples in their source, of 4 bytes where these are enough.
Positions: TypeAlias = NDArray[np.signedinteger]
_Numbers = Sequence[int] | NDArray[np.signedinteger]

#: The splits, in the order in which everything lists them.
PARTS = ("train", "val", "test")

#: So many random subsets are drawn in search of one that has every class.
_REDRAWS = 1000
#: A class of which fewer samples are due to held-out sets does not lower the share of the others.
_FEWEST_DUE = 20
#: A group so many times as large as what a held-out set is due is in training.
_TOO_LARGE = 2
#: At most this share of the groups that are not too large is held out.
_MOST_HELD_OUT = 0.5
#: Samples that are put into the order of classes at a time.
_ROWS = 2**17


def smallest_type(n: int) -> np.dtype[np.signedinteger]:
    """Return the smallest type of integers that holds -1 … n-1.

    >>> [smallest_type(n).name for n in (2, 128, 129, 100_000)]
    ['int8', 'int8', 'int16', 'int32']
    """
    return np.min_scalar_type(-max(n, 1))


def position_type(n: int) -> np.dtype[np.signedinteger]:
    """Return the type of the places of `n` samples."""
    return np.dtype(np.int32 if n < 2**31 else np.int64)


def as_positions(places: _Numbers) -> Positions:
    """Return places of samples as an array, of 4 bytes each where these are enough."""
    array = np.asarray(places)
    small = not len(array) or (array.min() >= -(2**31) and array.max() < 2**31)
    return array.astype(np.int32 if small else np.int64, copy=False)


def part_numbers(parts: Sequence[str]) -> NDArray[np.int8]:
    """Return which of `PARTS` each sample is in, -1 for none.

    >>> part_numbers(["test", "train", "other"]).tolist()
    [2, 0, -1]
    """
    number_of = {name: k for k, name in enumerate(PARTS)}
    return np.fromiter((number_of.get(part, -1) for part in parts), np.int8, len(parts))


def stratified_split(labels: _Numbers, *, val: float | int, test: float | int, seed: int = 0) -> dict[str, list[int]]:
    """Split positions 0 … n-1 into train, val and test.

    Each class gives each split its share, rounded. If it has few samples, the training set gets the first, the test
    set the second and the validation set the third.

    Parameters
    ----------
    labels
        The class number of each sample.
    val, test
        The share of all samples, in [0, 1), or their number if it is an integer.
    seed
        Random seed.

    Returns
    -------
    dict[str, list[int]]
        The positions of `"train"`, `"val"` and `"test"`.

    Examples
    --------
    >>> {name: len(part) for name, part in stratified_split([0] * 10 + [1] * 10, val=0.2, test=0.2).items()}
    {'train': 12, 'val': 4, 'test': 4}
    """
    return {name: part.tolist() for name, part in split_positions(labels, val=val, test=test, seed=seed).items()}


def split_positions(labels: _Numbers, *, val: float | int, test: float | int, seed: int) -> dict[str, Positions]:
    """Return what `stratified_split` does as arrays: lists of many rows would take ten times the memory."""
    shares = {"val": share_of("val", val, len(labels)), "test": share_of("test", test, len(labels))}
    _check_shares(*shares.values(), val=val, test=test)
    parts: dict[str, list[Positions]] = {name: [] for name in PARTS}
    for members in _shuffled_classes(labels, seed, "split"):
        n = len(members)
        # The test set is served first: with few samples an evaluation is worth more than a validation.
        n_test = _rounded(shares["test"] * n, low=int(shares["test"] > 0), high=n - 1)
        n_val = _rounded(shares["val"] * n, low=int(shares["val"] > 0), high=n - 1 - n_test)
        parts["test"].append(members[:n_test])
        parts["val"].append(members[n_test : n_test + n_val])
        parts["train"].append(members[n_test + n_val :])
    return {name: np.sort(np.concatenate([np.zeros(0, np.int32), *members])) for name, members in parts.items()}


def _check_shares(val_share: float, test_share: float, **given: float | int) -> None:
    if val_share + test_share >= 1:
        both = Argument("val"), " and ", Argument("test")
        asked = Argument("val", given.get("val", val_share)), " and ", Argument("test", given.get("test", test_share))
        raise ValueError(Sentence(*both, " must leave samples to train on, got ", *asked))


def grouped_split(
    labels: _Numbers, groups: NDArray[np.generic] | Sequence[int], *, val: float | int, test: float | int, seed: int = 0
) -> dict[str, Positions]:
    """Split positions 0 … n-1 into train, val and test with each group on one side.

    Each class gives each split its share of samples, as near as whole groups allow. Groups of one class and size are
    dealt out by the shares, and what is left of them goes where most samples are due, large groups first. Groups too
    large to hold out are in training, and smaller ones of their class make up for them. Where these are too few, the
    other classes give less, too. A group counts as its most frequent class. With groups of one sample each it is the
    split of `stratified_split`.

    Parameters
    ----------
    labels, val, test, seed
        As in `stratified_split`; a number of samples counts as their share.
    groups
        The number of each sample's group.

    >>> parts = grouped_split([0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 2, 2, 3, 3], val=0, test=0.5)
    >>> parts["train"].tolist(), parts["test"].tolist()
    ([2, 3, 4, 5], [0, 1, 6, 7])
    """
    y, (group, first) = np.asarray(labels), _numbered(np.asarray(groups))
    # Groups of one sample give the split that ungrouped data have: adding groups later changes nothing.
    if len(first) == len(y):
        return split_positions(labels, val=val, test=test, seed=seed)
    val, test = share_of("val", val, len(y)), share_of("test", test, len(y))
    _check_shares(val, test)
    by_class, n_groups = _shuffled_classes(_majority_class(y, group, first), seed, "split"), len(first)
    del first
    sizes = np.zeros(n_groups, group.dtype)  # half the memory of bincount's
    np.add.at(sizes, group, 1)
    # Sizes fall, and the order within a size is drawn. Groups of one sample, mostly many, need no sort.
    for members in by_class:
        alone = sizes[members] == 1
        large = members[~alone]
        members[len(large) :] = members[alone]
        members[: len(large)] = large[np.argsort(-sizes[large], kind="stable")]
    buckets = [_buckets(sizes[members]) for members in by_class]
    rates = [_held_out_rate(of_class, val, test) for of_class in buckets]
    kept = min([1.0, *(_MOST_HELD_OUT / rate for rate in rates if rate)])
    part_of_group = np.zeros(n_groups, np.int8)
    for members, of_class in zip(by_class, buckets, strict=True):
        _deal(part_of_group, members, of_class, kept * val, kept * test)
    part_of_each = part_of_group[group]
    return {name: as_positions(np.flatnonzero(part_of_each == k)) for k, name in enumerate(PARTS)}


def _buckets(sizes: Positions) -> list[tuple[int, int]]:
    """Return each size of groups and how many have it, from sizes that fall; those of one sample are not sorted."""
    n_large = int(np.searchsorted(-sizes, -1))
    values, counts = np.unique(sizes[:n_large], return_counts=True)
    alone = [(1, len(sizes) - n_large)] if n_large < len(sizes) else []
    return [*zip(values[::-1].tolist(), counts[::-1].tolist(), strict=True), *alone]


def _too_large(buckets: Sequence[tuple[int, int]], val: float, test: float) -> int:
    """Return how many of the first buckets have groups that are too large to hold out; not all."""
    most = _TOO_LARGE * max(val, test) * sum(size * count for size, count in buckets)
    first = sum(size > most for size, _ in buckets)
    return first if first < len(buckets) else 0


def _held_out_rate(buckets: Sequence[tuple[int, int]], val: float, test: float) -> float:
    """Return what share of the groups that are not too large must be held out, so that their class gives its share."""
    n = sum(size * count for size, count in buckets)
    smaller = sum(size * count for size, count in buckets[_too_large(buckets, val, test) :])
    due = (val + test) * n
    return 0.0 if smaller == n or due <= _FEWEST_DUE else due / smaller


def _deal(
    part_of_group: NDArray[np.int8], members: Positions, buckets: Sequence[tuple[int, int]], val: float, test: float
) -> None:
    """Give the groups of a class, from the largest to the smallest, to the splits."""
    large = _too_large(buckets, val, test)
    n, start = sum(size * count for size, count in buckets), sum(count for _, count in buckets[:large])
    times = n / sum(size * count for size, count in buckets[large:])  # the smaller ones make up for the large ones
    times = min(times, _MOST_HELD_OUT / (val + test)) if times > 1 and val + test else times
    shares = {2: times * test, 1: times * val, 0: 1 - times * (val + test)}
    due = dict.fromkeys(shares, 0.0)  # of the groups so far, so that each split has groups of all sizes
    for size, count in buckets[large:]:
        n_each = {k: math.floor(share * count) for k, share in shares.items()}
        due = {k: due[k] + size * (share * count - n_each[k]) for k, share in shares.items()}
        for _ in range(count - sum(n_each.values())):
            k = max(due, key=lambda part: (due[part], -part))
            n_each[k], due[k] = n_each[k] + 1, due[k] - size
        for k, some in zip(
            shares, np.split(members[start : start + count], np.cumsum(list(n_each.values()))), strict=False
        ):
            part_of_group[some] = k
        start += count
    _keep_a_group_in_each(part_of_group, members, val, test)


def _keep_a_group_in_each(part_of_group: NDArray[np.int8], members: Positions, val: float, test: float) -> None:
    """Give a class with few groups one to train, then one to test, then one to validate: the smallest it has."""
    wanted = [0, *([2] if test else []), *([1] if val else [])][: len(members)]
    for k in wanted:
        here = part_of_group[members]
        if not (here == k).any():
            # From the split that has the most groups: none loses its last one.
            counts = np.bincount(here, minlength=3)
            part_of_group[members[np.flatnonzero(here == counts.argmax())[-1]]] = k


def _numbered(groups: NDArray[np.generic]) -> tuple[Positions, Positions]:
    """Return groups as numbers in the order in which they come, `[n]`, and the first sample of each.

    So a split does not depend on the names of groups: they may be hashes, which differ between processes.
    """
    n = len(groups)
    if n and not (groups.dtype.kind in "iu" and 0 <= groups.min() <= groups.max() < 4 * n):
        groups = as_positions(np.unique(groups, return_inverse=True)[1])
    backwards = np.arange(n - 1, -1, -1, dtype=position_type(n))
    first_of = np.zeros(int(groups.max(initial=-1)) + 1, backwards.dtype)
    first_of[groups[::-1]] = backwards  # the last that is written stays: the first sample
    first = np.unique(first_of[groups])
    # Freed before the next array of this length is made: the peak counts for a billion rows.
    del backwards
    number_at = np.zeros(n, first_of.dtype)
    number_at[first] = np.arange(len(first))
    return number_at[first_of[groups]], first


def _majority_class(labels: Labels, group: Positions, first: Positions) -> Labels:
    """Return the most frequent class of each group, of equally frequent ones the lowest; see `_numbered`."""
    majority = labels[first]
    mixed = np.zeros(len(first), np.bool_)
    mixed[group[labels != majority[group]]] = True
    rows = np.flatnonzero(mixed[group])  # only groups of several classes are counted: duplicates mostly agree
    n_classes = int(labels.max(initial=0)) + 1
    # A pair (group, class) as one number: one sort instead of one for each group.
    pairs, counts = np.unique(group[rows].astype(np.int64) * n_classes + labels[rows], return_counts=True)
    # By group, then by falling count, then by class: the first of each group is its majority.
    order = np.lexsort((pairs % n_classes, -counts, pairs // n_classes))
    of_group, best = np.unique(pairs[order] // n_classes, return_index=True)
    majority[of_group] = pairs[order][best] % n_classes
    return majority


def fold_numbers(
    labels: _Numbers, n: int, *, groups: NDArray[np.generic] | Sequence[int] | None = None, seed: int = 0
) -> Positions:
    """Return which of `n` folds each sample is in, 0 … n-1: every class in the same proportions, each group in one.

    Parameters
    ----------
    labels
        The class number of each sample.
    n
        How many folds.
    groups
        The number of each sample's group, if samples must stay together; a group counts as its most frequent class.
    seed
        Random seed.

    >>> np.bincount(fold_numbers([0] * 6 + [1] * 3, 3)).tolist()
    [3, 3, 3]
    """
    y = np.asarray(labels)
    group, first = _numbered(np.arange(len(y)) if groups is None else np.asarray(groups))
    if len(first) < integer("n", n, low=2):
        raise ArgumentError("n", n, f"at most {len(first)}, the number of samples or groups")
    # Dealt out like cards, class after class, so that sizes differ by one at most.
    # Classes follow one another, so that dealing in turn spreads each of them evenly.
    dealt = np.concatenate(_shuffled_classes(_majority_class(y, group, first), seed, "folds"))
    fold = np.empty(len(first), np.int64)
    fold[dealt] = np.arange(len(dealt)) % n
    return fold[group]


def ordered_split(
    order: Sequence[float] | NDArray[np.float64], *, val: float | int, test: float | int
) -> dict[str, Positions]:
    """Split positions 0 … n-1 by an order such as time: the last are to test on, those before them to validate on.

    Parameters
    ----------
    order
        Where each sample stands; equal ones stay together, on the earlier side.
    val, test
        As in `stratified_split`.

    >>> {name: part.tolist() for name, part in ordered_split([3, 1, 2, 0], val=0.25, test=0.25).items()}
    {'train': [1, 3], 'val': [2], 'test': [0]}
    """
    at = np.asarray(order, np.float64)
    shares = {"val": share_of("val", val, len(at)), "test": share_of("test", test, len(at))}
    if sum(shares.values()) >= 1:
        raise ValueError(Sentence(Argument("val"), " and ", Argument("test"), " must leave samples to train on"))
    ranked = np.sort(at)
    n_test, n_val = (math.floor(shares[name] * len(at) + 0.5) for name in ("test", "val"))
    # Equal times stay on the earlier side: a test row must not be as old as a training row.
    ends = [ranked[len(at) - n - 1] if n < len(at) else -np.inf for n in (n_test + n_val, n_test)]
    part = (at > ends[0]).astype(np.int64) + (at > ends[1])
    return {name: as_positions(np.flatnonzero(part == k)) for k, name in enumerate(PARTS)}


def stratified_subset(labels: _Numbers, size: int, *, seed: int = 0) -> list[int]:
    """Return `size` positions of 0 … n-1, with every class in its proportion and at least once.

    Returns
    -------
    list[int]
        The positions, in rising order.

    Examples
    --------
    >>> stratified_subset([0, 0, 0, 0, 1, 1], 3)
    [2, 3, 5]
    """
    classes = _shuffled_classes(labels, seed, "subset")
    size = _subset_size(size, len(classes), len(labels))
    # Every class gets at least one sample, else it could not be learned.
    quotas = [max(1.0, size * len(members) / len(labels)) for members in classes]
    sizes = [math.floor(quota) for quota in quotas]
    while sum(sizes) < size:  # the largest remainder first
        able = [k for k, members in enumerate(classes) if sizes[k] < len(members)]
        sizes[max(able, key=lambda k: quotas[k] - sizes[k])] += 1
    while sum(sizes) > size:  # the minimum of one gave out too many: the largest class gives back
        sizes[max(range(len(sizes)), key=lambda k: sizes[k])] -= 1
    return sorted(i for members, n in zip(classes, sizes, strict=True) for i in members[:n].tolist())


def random_subset(labels: _Numbers, size: int, *, seed: int = 0) -> list[int]:
    """Return `size` positions of 0 … n-1, each subset as likely as any other that has every class.

    A class that would be left out, which no classifier could learn, is drawn again: the whole subset is.

    >>> random_subset([0, 0, 0, 0, 1, 1], 3)
    [0, 2, 5]
    """
    classes = len(np.unique(np.asarray(labels)))
    size = _subset_size(size, classes, len(labels))
    generator = torch.Generator().manual_seed(seed_from("random subset", seed))
    for _ in range(_REDRAWS):
        chosen: list[int] = sorted(permutation(len(labels), generator=generator)[:size].tolist())
        if len({int(labels[i]) for i in chosen}) == classes:
            return chosen
    raise ValueError(
        Sentence(
            f"{_REDRAWS} random draws of {size} samples all left out a class: pass ",
            Argument("subset", "stratified"),
            " or a larger ",
            Argument("train_size"),
        )
    )


def _subset_size(size: int, n_classes: int, n: int) -> int:
    if not n_classes <= integer("train_size", size, low=1) <= n:
        allowed = f"between {n_classes}, one sample of each class, and {n}, the size of the training set"
        raise ArgumentError("train_size", size, allowed)
    return size


def _shuffled_classes(labels: _Numbers, seed: int, what: str) -> list[Positions]:
    """Return the positions of each class, in an order drawn from the seed.

    scikit-learn's splitters shuffle by NumPy's generator: the splits of saved runs would not come back.
    """
    n, classes = len(labels), np.asarray(labels)
    # Counting needs small numbers; labels with gaps or below 0 are numbered first.
    if n and not 0 <= classes.min() <= classes.max() < 2**20:
        classes = np.unique(classes, return_inverse=True)[1]
    generator = torch.Generator().manual_seed(seed_from(what, seed))
    # One permutation of all samples, then sorted by class: the order within a class is random.
    order = permutation(n, generator=generator, dtype=torch.int32 if n < 2**31 else torch.int64).numpy()
    counts = np.bincount(classes) if n else np.zeros(0, np.int64)
    ends = np.cumsum(counts)
    free, sorted_order = ends - counts, np.empty_like(order)
    for start in range(0, n, _ROWS):  # a sort by counting, in place of one that takes 16 bytes for each sample
        some = order[start : start + _ROWS]
        here = classes[some]
        by_class = np.argsort(here, kind="stable")
        of_each = np.bincount(here, minlength=len(counts))
        rank = np.arange(len(some)) - np.repeat(np.cumsum(of_each) - of_each, of_each)
        sorted_order[np.repeat(free, of_each) + rank] = some[by_class]
        free += of_each
    return [members for members in np.split(sorted_order, ends[:-1]) if len(members)]


def _rounded(value: float, *, low: int, high: int) -> int:
    return min(max(math.floor(value + 0.5), low), max(high, 0))
