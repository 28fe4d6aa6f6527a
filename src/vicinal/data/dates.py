"""Dates as numbers: days, year, month, weekday and hour of day, a whole column at a time."""

from __future__ import annotations

import re
import warnings

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import require
from vicinal.tables.column_values import distinct, is_text, names_of

_TIME = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp][Mm])?"
#: A date, with a time of day or without, or a time of day alone.
DATE = re.compile(
    rf"(\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}"
    rf"|\d{{1,2}}[ -][A-Za-z]{{3,9}}[ -,]+\d{{2,4}}|[A-Za-z]{{3,9}} \d{{1,2}}, \d{{4}})"
    rf"([T ]+{_TIME}( ?(Z|UTC|[+-]\d{{2}}:?\d{{2}}))?)?|{_TIME}"
)
_TIME_ALONE = re.compile(_TIME)
_NUMBERED = re.compile(r"(\d{1,2})([-/.])(\d{1,2})[-/.]\d{2,4}")
_DAY = 86_400_000_000

#: What a date becomes: days since 1970, the time of day as a fraction; year; month; weekday, Monday 0; hour of day.
PARTS = ("day", "year", "month", "weekday", "hour")

Floats = NDArray[np.float64]


def is_day_first(column: object) -> bool:
    """Return whether 03/04/2021 is in April: some first number is above 12, or dots stand between and none says no."""
    if not is_text(column):
        return False
    parts = [match for name in names_of(distinct(column)[1]) if (match := _NUMBERED.match(name))]
    if any(int(match[1]) > 12 for match in parts):
        return True
    return any(match[2] == "." for match in parts) and not any(int(match[3]) > 12 for match in parts)


def date_parts(column: object, *, day_first: bool) -> tuple[dict[str, Floats], NDArray[np.bool_]]:
    """Return the parts of each date `[M]`, NaN where it is missing or no date, and a mask of the cells that are none.

    Parameters
    ----------
    column
        A pyarrow array of dates, of times, or of text that spells them.
    day_first
        Whether 03/04/2021 is in April.

    >>> pa = require("pyarrow", "train")
    >>> parts, _ = date_parts(pa.array(["1970-01-02", "1970-01-05 06:00", ""]), day_first=False)
    >>> {name: values[:2].tolist() for name, values in parts.items()}
    {'day': [1.0, 4.25], 'year': [1970.0, 1970.0], 'month': [1.0, 1.0], 'weekday': [4.0, 0.0], 'hour': [0.0, 6.0]}
    """
    place, values = distinct(column)
    stamps = np.append(_stamps(values, day_first), np.datetime64("NaT"))  # the place of a missing value is -1
    names = [*names_of(values), ""]
    missing = np.isnat(stamps)
    odd = missing & np.array([bool(name) for name in names])
    micro = stamps.astype("datetime64[us]").astype(np.int64)
    days = stamps.astype("datetime64[D]")
    months = stamps.astype("datetime64[M]").astype(np.int64)
    parts = {
        "day": micro / _DAY,
        "year": 1970.0 + months // 12,
        "month": 1.0 + months % 12,
        "weekday": (days.astype(np.int64) + 3) % 7 * 1.0,  # 1970 began on a Thursday
        "hour": micro % _DAY / (_DAY / 24),
    }
    return {name: np.where(missing, np.nan, part)[place] for name, part in parts.items()}, odd[place]


def _stamps(values: list[object], day_first: bool) -> NDArray[np.datetime64]:
    """Return values as points in time, UTC where they name a zone; a time of day alone is of 1 January 1970."""
    pandas = require("pandas", "train")
    texts = [
        "" if value is None else f"1970-01-01 {value}" if _TIME_ALONE.fullmatch(str(value).strip()) else str(value)
        for value in values
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns of mixed formats, which are expected
        stamps = pandas.to_datetime(
            pandas.Series(texts, dtype=object), format="mixed", dayfirst=day_first, errors="coerce", utc=True
        )
    moments: NDArray[np.datetime64] = stamps.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    return moments
