import math

import numpy as np
import pandas as pd
import pytest

from vicinal.data import TableOptions, load, read
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.target_statistics import TargetStatistics, ordered, statistics, targets_of


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def slow(before: list[float], prior: float) -> float:
    """The log-odds of the share among some rows and one more that has the prior, less those of the prior."""
    return logit((sum(before) + prior) / (len(before) + 1)) - logit(prior)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_statistics_equal_those_of_loops(random):
    codes, labels = random.integers(-1, 5, 60), random.integers(0, 3, 60)
    targets = targets_of(labels, 3)
    found = statistics(tuple("abcde"), codes, targets)
    for v in range(5):
        of_value = targets[codes == v]
        expected = [slow(of_value[:, k].tolist(), targets[:, k].mean()) for k in range(3)]
        assert found.log_odds[v] == pytest.approx(expected)


def test_a_training_row_has_the_statistics_of_the_rows_before_it(random):
    codes, targets = random.integers(-1, 7, 80), targets_of(random.integers(0, 2, 80), 2)
    found = ordered(codes, targets, seed=3)
    prior = float(targets.mean())
    for v in range(7):
        rows = np.flatnonzero(codes == v)
        # Each row must have the statistics of some first few of the others, and each number of them occurs once.
        y = targets[rows, 0].tolist()
        possible = [{round(slow([1.0] * s + [0.0] * (n - s), prior), 9) for s in range(n + 1)} for n in range(len(y))]
        values = sorted(found[rows, 0].round(9).tolist())
        assert 0.0 in values  # of the first row, which has none before it
        assert set(values) <= set().union(*possible)
    assert (found[codes < 0] == 0).all()
    assert (ordered(codes, targets, 3) == found).all()
    assert (ordered(codes, targets, 4) != found).any()


def test_no_row_sees_its_own_target(random):
    codes, labels = random.integers(0, 20, 200), random.integers(0, 2, 200)
    before = ordered(codes, targets_of(labels, 2), seed=0)
    later = 0
    for i in range(0, 200, 10):
        other = labels.copy()
        other[i] = 1 - other[i]
        change = np.abs(ordered(codes, targets_of(other, 2), seed=0) - before)[:, 0]
        assert change[i] < 0.05  # by the share of all rows alone, whose log-odds move by 0.02
        later += int((change[codes == codes[i]] > 0.05).sum())
    assert later > 50  # rows of the same value that come later do see it


def frame(n: int = 1200, n_codes: int = 240) -> pd.DataFrame:
    random = np.random.default_rng(1)
    code = random.integers(0, n_codes, n)
    label = np.where(random.random(n) < np.where(code % 2 == 0, 0.9, 0.1), "yes", "no")
    return pd.DataFrame({"code": [f"c{k}" for k in code], "x": random.normal(size=n), "y": label})


def test_training_rows_are_ordered_and_new_rows_have_all(tmp_path):
    rows = frame()
    task = load(rows, TableOptions(features="ranked"), target="y")
    encoding = task.preprocessing
    place = encoding.feature_names.index("code, target statistic 1 of 1")
    (column,) = (column for column in encoding.columns if column.name == "code")
    chosen = rows.iloc[task.train.indices]
    share = {v: (part == "yes").tolist() for v, part in chosen.groupby("code")["y"]}
    prior = float((chosen["y"] == "yes").mean())
    for i, code in zip(range(20), rows["code"].iloc[task.test.indices], strict=False):
        assert task.test.features()[i, place] == pytest.approx(slow(share.get(code, []), prior), abs=1e-5)
    known = dict(zip(column.statistics.values, column.statistics.log_odds, strict=True))
    full = np.array([known[code][0] for code in chosen["code"]])
    assert (np.abs(task.train.features()[:, place] - full) > 1e-3).mean() > 0.9
    again = Preprocessing.from_dict(encoding.to_dict())
    assert again == encoding
    new = read(rows.iloc[task.test.indices], again)
    assert (new.features()[:, place] == task.test.features()[:, place]).all()
    # The same table, split and seed give the same training rows, whether the encoding is fitted or used again.
    same = load(rows, TableOptions(features="ranked"), target="y", splits=task.splits, fitted=again)
    assert (same.train.features() == task.train.features()).all()


def test_a_value_that_was_not_seen_has_zeros():
    encoding = load(frame(), target="y").preprocessing
    place = encoding.feature_names.index("code, target statistic 1 of 1")
    assert encoding({"code": "new", "x": 0.0})[place] == 0
    assert encoding({"code": None, "x": 0.0})[place] == 0
    assert encoding({"code": "c1", "x": 0.0})[place] != 0


def test_noise_in_labels_is_refused():
    from vicinal.runs import Experiment
    from vicinal.runs.run import corrupted, load_task

    experiment = Experiment(source="table", data={"target": "y"}, corrupt=0.2)
    with pytest.raises(ValueError, match="code"):
        corrupted(load_task(experiment, source=frame()), experiment)


def test_damaged_statistics_are_refused():
    for record in ({}, {"a": [1.0], "b": [1.0, 2.0]}, {"a": [math.nan]}, {"a": 1.0}, [1]):
        with pytest.raises(ValueError, match="statistics"):
            TargetStatistics.from_dict(record)


def test_boosting_learns_from_many_codes():
    from vicinal import VicinalClassifier

    rows = frame(2000, 400)
    # Only every second code is frequent enough to have a feature of its own: the statistics tell all of them.
    train, test = rows[:1500], rows[1500:]
    model = VicinalClassifier(model="hgb", random_state=0).fit(train[["code", "x"]], train["y"])
    assert model.score(test[["code", "x"]], test["y"]) > 0.68


def test_several_labels_have_statistics_each():
    rows = frame()
    labels = pd.DataFrame({"code": rows["code"], "a": (rows["y"] == "yes") * 1, "b": np.arange(len(rows)) % 2})
    task = load(labels, target=["a", "b"])
    assert "code, target statistic 2 of 2" in task.preprocessing.feature_names
