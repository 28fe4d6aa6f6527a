from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vicinal
from vicinal import CutMix, LogitMix, ManifoldMixup, Mixup, parse


def test_text_builds_the_object_it_describes():
    assert parse("LogitMix(CutMix(alpha=1.0), weight=0.1)") == LogitMix(CutMix(alpha=1.0), weight=0.1)
    assert parse("  Mixup(alpha=inf)\n") == Mixup(alpha=math.inf)
    assert parse("LogitMix(base=Mixup(alpha=3))") == LogitMix(Mixup(alpha=3.0))
    assert parse("ManifoldMixup(layers=['input', 'a.b'])") == ManifoldMixup(layers=("input", "a.b"))
    assert parse("Mixup(\n  alpha=0.4,\n)") == Mixup(alpha=0.4)


def test_fields_are_normalised_so_equal_objects_print_equally():
    assert repr(Mixup(alpha=1)) == repr(Mixup(alpha=1.0))
    assert Mixup(alpha=1) == Mixup(alpha=1.0)
    assert repr(ManifoldMixup(layers=["input"])) == repr(ManifoldMixup(layers=("input",)))


@given(
    alpha=st.floats(0, allow_nan=False, allow_infinity=True),
    prob=st.floats(0, 1),
    per_sample=st.booleans(),
    weight=st.floats(0, 1e6),
)
def test_any_objective_round_trips(alpha, prob, per_sample, weight):
    objective = LogitMix(CutMix(alpha=alpha, prob=prob, per_sample=per_sample), weight=weight)
    assert parse(repr(objective)) == objective


def pointer(text: str, match: str) -> int:
    """Return the column that the error for `text` points at."""
    with pytest.raises(ValueError, match=match) as caught:
        parse(text)
    line, marker = str(caught.value).splitlines()[-2:]
    assert line.strip() in text
    return marker.index("^") - 4


@pytest.mark.parametrize(
    ("text", "match", "place"),
    [
        ("Mixupp(alpha=0.4)", "unknown objective 'Mixupp'; did you mean 'Mixup'", "Mixupp"),
        ("LogitMix(Mixupp(alpha=0.4))", "did you mean 'Mixup'", "Mixupp"),
        ("Mixup(alhpa=0.4)", "no parameter 'alhpa'; did you mean 'alpha'", "alhpa"),
        ("Mixup(alpha=-1)", "alpha must be a number of at least 0 or inf, got -1", "Mixup"),
        ("Mixup()", "^Mixup: missing 1 required keyword-only argument: 'alpha'", "Mixup"),
        ("Mixup(0.4)", "parameters of Mixup are named: write alpha=", "0.4"),
        ("LogitMix(Mixup(alpha=1.0), 0.1)", "named: write", "0.1"),
        ("LogitMix(ERM())", "base must be a mixing objective", "LogitMix"),
        ("LogitMix(Mixup)", "'Mixup' must be called", "Mixup)"),
        ("Mixup(alpha=__import__('os'))", "unknown objective '__import__'", "__import__"),
        ("Mixup(alpha=1+1)", "only objectives and literals", "1+1"),
        ("Mixup(alpha=x)", "unknown name 'x'", "x)"),
        ("Mixup(alpha=(lambda: 1)())", "only public objectives can be called", "lambda"),
        ("Mixup(**{'alpha': 1})", "no parameter", "**"),
        ("Mixup(alpha=0.4", "not a method expression", "("),
        ("Mixup(alpha=0.4).draw()", "only public objectives can be called", "Mixup"),
        ("Mixup.draw(alpha=0.4)", "Mixup has no constructor 'draw'", "Mixup"),
        ("Mixup(alpha=-'a')", "a sign belongs before a number", "-'a'"),
        ("0.4", "must build an objective", "0.4"),
        ("", "not a method expression", ""),
        ("Mixup(alpha='0.4')", "alpha must be a number", "Mixup"),
    ],
)
def test_errors_point_at_the_place(text, match, place):
    assert pointer(text, match) == text.index(place)


def test_columns_count_characters_not_bytes():
    assert pointer("Mixup(labels='größe', alhpa=1.0)", "alhpa") == "Mixup(labels='größe', alhpa=1.0)".index("alhpa")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 500 + ")" * 500,
        "LogitMix(" * 900,
        "Mixup(alpha=\0)",
        "Mixup(alpha=\ud800)",
        "-" * 5000 + "1",
        "x" * 20_000,
    ],
)
def test_hostile_text_is_refused(text):
    with pytest.raises(ValueError, match=r"expression|sign"):
        parse(text)


def test_text_must_be_text():
    with pytest.raises(TypeError, match="text must be a string"):
        parse(Mixup(alpha=0.4))


def test_nothing_is_evaluated(tmp_path):
    marker = tmp_path / "marker"
    with pytest.raises(ValueError, match=r"unknown|only"):
        parse(f"Mixup(alpha=open({str(marker)!r}, 'w'))")
    assert not marker.exists()


def test_public_name():
    assert vicinal.parse is parse
