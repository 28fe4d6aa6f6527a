"""Dates as numbers: days, year, month, weekday and hour of day, a whole column at a time.

`2020-07-05`, `20200705` and dates that a file holds as such have one meaning. `05/07/2020` has two, so that every cell
of a column is counted: `31/07/2020` can only begin with the day. `DateEvidence` adds these counts up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Argument, Sentence
from vicinal.tables.column_values import distinct, names_of
from vicinal.tables.number_format import MARKERS

_NAMES = """jan ene|feb fev fév|mar mär mrz|apr abr avr|may mai|jun juin|jul juil|aug ago aoû|sep set|oct okt|nov|
dec dez dic déc"""
_MONTHS = {name: k for k, names in enumerate(_NAMES.split("|"), start=1) for name in names.split()}
_TIME = re.compile(
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?(?: ?(?:Z|UTC|GMT|(?P<zone>[+-]\d{2}(?::?\d{2})?)))?"
)
#: How days of the week begin in English, German, French, Spanish, Italian and Dutch.
_WEEKDAYS = frozenset(
    """mon tue wed thu fri sat sun mo di mi do fr sa so die mit don fre sam son lun mar mer jeu ven dim mié mie jue vie
    sáb sab dom gio maa din woe vri zat zon""".split()  # noqa: SIM905 (shorter)
)
#: A day of the week before a date.
_WEEKDAY = re.compile(r"([^\W\d_]{2,10})\.?,? +(?=\d|[^\W\d_]+ \d)")
#: Milliseconds since 1970, as JSON has dates, from 2001 to 2103.
_EPOCH = re.compile(r"[1-4]\d{12}")
_DAY_MS = 86_400_000
#: Year, month and day; the numbers that have an order of their own; a month by its name.
_ISO = re.compile(r"(?P<year>\d{4})(?:(?P<by>[-/.])(?P<month>\d{1,2})(?P=by)|(?P<joined>\d{2}))(?P<day>\d{1,2})")
_NUMBERED = re.compile(r"(?P<first>\d{1,2})(?P<by>[-/.]|\. )(?P<second>\d{1,2})(?P=by)(?P<year>\d{4}|\d{2})")
_NAMED = re.compile(
    r"(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?[ -]*(?P<name>[^\W\d_]{3,10})\.?[ ,-]+(?P<year>\d{4}|\d{2})"
    r"|(?P<name2>[^\W\d_]{3,10})\.? (?P<day2>\d{1,2})(?:st|nd|rd|th)?,? (?P<year2>\d{4})"
)
_DAY = 86_400_000_000
#: Different texts that are no dates and are counted.
_OTHERS = 64
_START = datetime(1970, 1, 1)

#: What a date becomes: days since 1970, the time of day as a fraction; year; month; weekday, Monday 0; hour of day.
PARTS = ("day", "year", "month", "weekday", "hour")

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class _Stamp(NamedTuple):
    """A cell as microseconds since 1970, with the month before the day and with the day before it; None for none."""

    month_first: int | None
    day_first: int | None
    is_time: bool = False
    """Whether it is a time of day alone."""
    by: str = ""
    """What stands between the numbers of a date whose order is not fixed."""


class Dates(NamedTuple):
    """A column of dates."""

    parts: dict[str, Floats]
    """By the names in `PARTS`, `[M]`; NaN where it is missing or no date."""
    odd: Mask
    """Cells that are no date."""
    contrary: Mask
    """Those of them that are dates in the other order, or times of day where dates are due."""


@dataclass(eq=False)
class DateEvidence:
    """What the cells of a column tell of its dates."""

    n: int = 0
    """Cells that are dates, or times of day."""
    times: int = 0
    """Times of day alone."""
    day_first: int = 0
    """Cells that begin with the day for certain."""
    month_first: int = 0
    """Cells that begin with the month for certain."""
    either: int = 0
    dotted: int = 0
    """Cells with dots, which stand behind the day in most countries that write them."""
    compact: int = 0
    """Numbers such as 20200131, and milliseconds since 1970 at midnight."""
    milliseconds: bool = False
    """Whether they are the second."""
    others: Counter[str] = field(default_factory=Counter)
    """Cells that are neither dates nor marked as missing, the first few different ones."""
    example: str = ""

    def add(self, text: str, n: int) -> None:
        """Take a cell of text that occurs `n` times."""
        stamp = _stamp(text)
        if stamp is None:
            if text.lower() not in MARKERS and (text in self.others or len(self.others) < _OTHERS):
                self.others[text] += n
            return
        self.n += n
        self.times += n * stamp.is_time
        self.dotted += n * (stamp.by[:1] == ".")
        if not stamp.by:
            return
        if stamp.month_first is None:
            self.day_first += n
        elif stamp.day_first is None:
            self.month_first += n
        elif stamp.day_first != stamp.month_first:
            self.either += n
            self.example = self.example or text

    def merge(self, other: DateEvidence) -> None:
        """Add what the cells after these tell, but for numbers such as 20200131."""
        for name in ("n", "times", "day_first", "month_first", "either", "dotted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for text, n in other.others.items():
            if text in self.others or len(self.others) < _OTHERS:
                self.others[text] += n
        self.example = self.example or other.example

    def own(self) -> bool | None:
        """Return whether the day comes first, None where no cell tells."""
        if self.day_first != self.month_first:
            return self.day_first > self.month_first
        return True if self.dotted else None


def is_date(text: str) -> bool:
    """Return whether a text is a date, with a time of day or without, or a time of day alone."""
    return _stamp(text) is not None


def day_first_of(evidence: Mapping[str, DateEvidence], given: bool | None) -> dict[str, bool | None]:
    """Return for each column of dates whether the day comes first: as given, by its cells, or as in the others.

    None where the columns have no such cell, and nothing was given.
    """
    own = {name: one.own() for name, one in evidence.items()}
    known = {order for order in own.values() if order is not None}
    table = known.pop() if len(known) == 1 else None
    return {name: given if given is not None else table if order is None else order for name, order in own.items()}


def order_notes(name: str, one: DateEvidence, order: bool | None, given: bool) -> list[str]:
    """Return what was assumed of a column of dates, one sentence each."""
    if one.compact:
        how = "milliseconds since 1970" if one.milliseconds else "written like 20200131"
        return [f"column {name!r} is read as dates, {how}"]
    if given or not (one.either or one.day_first or one.month_first):
        return []
    day_first = bool(order)
    if one.own() is None:
        first = "day" if day_first else "month"
        return [
            Sentence(
                f"column {name!r}: no cell tells whether {one.example!r} begins with the day or the month; the {first} "
                "is assumed (",
                Argument("day_first", not day_first),
                " reads it the other way)",
            )
        ]
    against = one.month_first if day_first else one.day_first
    said = f"column {name!r}: dates begin with the {'day' if day_first else 'month'}"
    return [said + (f", and {against:,} that cannot are missing" if against else "")]


def valid_milliseconds(values: Floats) -> Mask:
    """Return which numbers are dates as milliseconds since 1970, at midnight: a number by chance hardly is.

    >>> valid_milliseconds(np.array([1614556800000.0, 1614556800001.0, 0.0])).tolist()
    [True, False, False]
    """
    valid: Mask = (values >= 1e12) & (values < 5e12) & (values % _DAY_MS == 0)
    return valid


def valid_compact(values: Floats) -> Mask:
    """Return which numbers are dates such as 20200131, from 1900 to 2099.

    >>> valid_compact(np.array([20200131.0, 20201301.0, 7.0])).tolist()
    [True, False, False]
    """
    inside: Mask = (values >= 19000101) & (values <= 20991231) & (values % 1 == 0)
    if not inside.any():
        return inside
    days = np.where(inside, values, 19000101).astype(np.int64)
    year, month, day = days // 10000, days // 100 % 100, days % 100
    good = inside & (month >= 1) & (month <= 12) & (day >= 1)
    month_number = (year - 1970) * 12 + np.where(good, month - 1, 0)
    first, following = (
        number.astype("datetime64[M]").astype("datetime64[D]") for number in (month_number, month_number + 1)
    )
    valid: Mask = good & (day <= (following - first).astype(np.int64))
    return valid


def date_parts(column: object, *, day_first: bool | None, times: bool = False) -> Dates:
    """Return the parts of each date `[M]`, and which cells are none.

    Parameters
    ----------
    column
        A pyarrow array of dates, of times, of text that spells them, or of numbers such as 20200131.
    day_first
        Whether 03/04/2021 is in April; it is in March if None.
    times
        Whether the column holds times of day: a time without a date is a date only there.

    >>> import pyarrow as pa
    >>> parts = date_parts(pa.array(["1970-01-02", "1970-01-05 06:00", ""]), day_first=False).parts
    >>> {name: values[:2].tolist() for name, values in parts.items()}
    {'day': [1.0, 4.25], 'year': [1970.0, 1970.0], 'month': [1.0, 1.0], 'weekday': [4.0, 0.0], 'hour': [0.0, 6.0]}
    """
    place, values = distinct(column)
    names = [*names_of(values), ""]  # the place of a missing value is -1
    stamps = [_stamp(name) if name else None for name in names]
    read = [_read(stamp, day_first, times) for stamp in stamps]
    missing = np.array([value is None for value in read])
    odd = missing & np.array([bool(name) for name in names])
    contrary = odd & np.array([stamp is not None for stamp in stamps])
    micro = np.array([value or 0 for value in read], np.int64)
    stamp = micro.astype("datetime64[us]")
    days, months = stamp.astype("datetime64[D]"), stamp.astype("datetime64[M]").astype(np.int64)
    parts = {
        "day": micro / _DAY,
        "year": 1970.0 + months // 12,
        "month": 1.0 + months % 12,
        "weekday": (days.astype(np.int64) + 3) % 7 * 1.0,  # 1970 began on a Thursday
        "hour": micro % _DAY / (_DAY / 24),
    }
    shown = {name: np.where(missing, np.nan, part)[place] for name, part in parts.items()}
    return Dates(shown, odd[place], contrary[place])


def _read(stamp: _Stamp | None, day_first: bool | None, times: bool) -> int | None:
    if stamp is None or (stamp.is_time and not times):
        return None
    return stamp.day_first if day_first else stamp.month_first


@lru_cache(maxsize=2**16)
def _stamp(text: str) -> _Stamp | None:
    """Return a cell as points in time, UTC where it names a zone; a time of day alone is of 1 January 1970."""
    if not 4 <= len(text) <= 48:
        return None
    time = _TIME.fullmatch(text)
    if time is not None:
        moment = _time_of_day(time)
        return None if moment is None else _Stamp(moment, moment, is_time=True)
    if _EPOCH.fullmatch(text):
        return _Stamp(1000 * int(text), 1000 * int(text))
    stamp = _dated(text)
    # The month comes first: mar is March, and Tuesday in French.
    if stamp is None and (weekday := _WEEKDAY.match(text)) and weekday[1].casefold()[:3] in _WEEKDAYS:
        return _dated(text[weekday.end() :])
    return stamp


def _dated(text: str) -> _Stamp | None:
    """Return a date, with a time of day or without, as `_stamp` does."""
    for pattern in (_ISO, _NUMBERED, _NAMED):
        found = pattern.match(text)
        if found is None:
            continue
        rest = text[found.end() :].lstrip(" T,") if text[found.end() :][:1] in ("", " ", "T", ",") else "x"
        clock = _TIME.fullmatch(rest)
        moment = 0 if not rest else None if clock is None else _time_of_day(clock)
        if moment is None:
            continue
        month_first, day_first = (_days(found, order, moment) for order in (False, True))
        if month_first is None and day_first is None:
            continue
        return _Stamp(month_first, day_first, by=found["by"] if pattern is _NUMBERED else "")
    return None


def _days(found: re.Match[str], day_first: bool, moment: int) -> int | None:
    """Return the microseconds since 1970 of a date in an order, None where there is no such day."""
    part = found.groupdict()
    if "first" in part:
        day, month = (part["first"], part["second"]) if day_first else (part["second"], part["first"])
        year = part["year"]
    else:
        day, year = part["day"] or part["day2"], part["year"] or part["year2"]
        name = (part.get("name") or part.get("name2") or "").lower()
        month = part.get("month") or part.get("joined") or str(_MONTHS.get(name[:4], _MONTHS.get(name[:3], 0)))
    if part.get("joined") and len(day) != 2:
        return None
    number = int(year)
    if len(year) == 2:
        number += 2000 if number < 69 else 1900  # as POSIX has it
    try:
        return (datetime(number, int(month), int(day)) - _START) // timedelta(microseconds=1) + moment
    except ValueError:
        return None


def _time_of_day(time: re.Match[str]) -> int | None:
    """Return the microseconds since midnight, UTC where a zone is named; None where there is no such time."""
    hour, minute, second = (int(time[name] or 0) for name in ("hour", "minute", "second"))
    if time["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (time["half"] in "pP")
    if hour > 23 or minute > 59 or second > 59:
        return None
    zone = time["zone"] or "+00:00"
    offset = (int(zone[1:3]) * 60 + int(zone[3:].lstrip(":") or 0)) * (-1 if zone[0] == "-" else 1)
    fraction = int((time["fraction"] or "0").ljust(6, "0")[:6])
    return ((hour * 60 + minute - offset) * 60 + second) * 1_000_000 + fraction
