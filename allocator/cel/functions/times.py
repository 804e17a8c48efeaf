"""Timestamps and durations, also outside of the years that Python knows: a time zone can move a timestamp there."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from datetime import date as python_date
from functools import cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Function, Library, free, member
from allocator.cel.functions.scanning import nanoseconds, whole_number
from allocator.cel.types import DURATION, INT, STRING, TIMESTAMP
from allocator.cel.values import INT_MAX, INT_MIN, Duration, Timestamp

_DAY: Final = 86400
_CYCLE_DAYS: Final = 146_097
"""After 400 years the calendar repeats."""

_CYCLE_YEARS: Final = 400
_FIRST_DAY: Final = python_date(1970, 1, 1).toordinal()


class Date(NamedTuple):
    """A date of the Gregorian calendar; months and days count from 1."""

    year: int
    month: int
    day: int
    day_of_year: int


class Moment(NamedTuple):
    """Seconds since 1970-01-01T00:00:00 in local time."""

    seconds: int

    @property
    def day_of_week(self) -> int:
        """0 is Sunday; 1970 began on a Thursday."""
        return (self.seconds // _DAY + 4) % 7

    def date(self) -> Date:
        """The date."""
        cycles, day = divmod(self.seconds // _DAY + _FIRST_DAY - 1, _CYCLE_DAYS)
        found = python_date.fromordinal(day + 1)
        day_of_year = found.timetuple().tm_yday
        return Date(found.year + cycles * _CYCLE_YEARS, found.month, found.day, day_of_year)


SECOND: Final = 10**9
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(Z|z|[+-]\d\d:\d\d)", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TWO_DAYS: Final = 2 * 86400
_FIRST: Final = -62135596800 * SECOND
_LAST: Final = 253402300800 * SECOND - 1


def checked_timestamp(nanos: int) -> Timestamp:
    """A timestamp, if it is in the years 1 to 9999.

    Raises:
        EvaluationError: it is not.
    """
    if _FIRST <= nanos <= _LAST:
        return Timestamp(nanos)
    raise EvaluationError("timestamp overflow")


def checked_duration(nanos: int) -> Duration:
    """A duration, if its nanoseconds fit 64 bits.

    Raises:
        EvaluationError: they do not.
    """
    if INT_MIN <= nanos <= INT_MAX:
        return Duration(nanos)
    raise EvaluationError("duration overflow")


def parse_timestamp(text: str) -> Timestamp:
    """RFC 3339.

    Raises:
        EvaluationError: not a timestamp, or out of range.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise EvaluationError(f"cannot parse {text[:64]!r} as a timestamp")
    *parts, fraction, zone = match.groups()
    try:
        moment = datetime(*(int(part) for part in parts), tzinfo=UTC)  # type: ignore[arg-type, misc]  # six numbers
    except ValueError as error:
        raise EvaluationError(f"cannot parse {text[:64]!r} as a timestamp: {error}") from None
    offset = 0 if zone in "Zz" else _offset_of_text(zone)
    seconds = (moment - _EPOCH) // timedelta(seconds=1) - offset
    return checked_timestamp(seconds * SECOND + int((fraction or "0")[:9].ljust(9, "0")))


def _offset_of_text(text: str) -> int:
    """The seconds of ``+01:30``."""
    return (-1 if text[0] == "-" else 1) * (int(text[1:3]) * 3600 + int(text[4:6]) * 60)


def parse_duration(text: str) -> Duration:
    """``1h30m``, ``-1.5s``, as Go writes durations.

    Raises:
        EvaluationError: not a duration, or out of range.
    """
    try:
        nanos = nanoseconds(text, _UNITS)
    except OverflowError:
        raise EvaluationError("duration overflow") from None
    if nanos is None:
        raise EvaluationError(f"cannot parse {text[:64]!r} as a duration")
    return Duration(nanos)


def timestamp_text(value: Timestamp) -> str:
    """RFC 3339 in UTC, with the digits of the second that are needed."""
    seconds, nanos = divmod(value.nanos, SECOND)
    moment = _EPOCH + timedelta(seconds=seconds)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return f"{moment:%m-%dT%H:%M:%S}{fraction}Z".join([f"{moment.year:04}-", ""])


def duration_text(value: Duration) -> str:
    """Seconds, e.g. ``1.5s``."""
    seconds, nanos = divmod(abs(value.nanos), SECOND)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return f"{'-' if value.nanos < 0 else ''}{seconds}{fraction}s"


@cache
def _zones() -> frozenset[str]:
    """The known names, so that an unknown name is refused without a search for its file."""
    return frozenset(available_timezones())


def _offset(zone: str, seconds: int) -> int:
    """The offset of a zone from UTC in seconds at a moment, which is given in seconds since 1970.

    Raises:
        EvaluationError: no such zone.
    """
    if ":" in zone:
        return _numeric_offset(zone)
    if zone in {"", "UTC", "Local"}:
        return 0
    if zone not in _zones():
        raise EvaluationError(f"unknown time zone {zone[:64]!r}")
    inside = min(max(seconds, _FIRST // SECOND + _TWO_DAYS), _LAST // SECOND - _TWO_DAYS)
    offset = (_EPOCH + timedelta(seconds=inside)).astimezone(ZoneInfo(zone)).utcoffset()
    return 0 if offset is None else offset // timedelta(seconds=1)


def _numeric_offset(text: str) -> int:
    """``+01:30``; any number of hours and minutes is allowed, and the arithmetic wraps around, as upstream."""
    hours_text, _, minutes_text = text.partition(":")
    try:
        hours, minutes = whole_number(hours_text), whole_number(minutes_text)
    except OverflowError:
        hours = minutes = None
    if hours is None or minutes is None or not all(INT_MIN <= part <= INT_MAX for part in (hours, minutes)):
        raise EvaluationError(f"unknown time zone {text[:64]!r}")
    nanos = _wrapped((hours * 60 + (-minutes if text[0] == "-" else minutes)) * 60 * SECOND)
    return -(-nanos // SECOND) if nanos < 0 else nanos // SECOND


def _wrapped(value: int) -> int:
    """The value of the lowest 64 bits."""
    return (value - INT_MIN) % 2**64 + INT_MIN


def _field(name: str, get: Callable[[Moment], int]) -> Function:
    """A part of a timestamp, in UTC or in a time zone."""

    def call(value: Timestamp, zone: str = "UTC") -> int:
        seconds = value.nanos // SECOND
        return get(Moment(seconds + _offset(zone, seconds)))

    return Function(
        name,
        (member(TIMESTAMP, result=INT, call=call), member(TIMESTAMP, STRING, result=INT, call=call)),
    )


def _with_duration(function: Function, unit: int) -> Function:
    """The function with an overload for durations: the whole duration in a unit, rounded towards zero."""

    def call(value: Duration) -> int:
        whole = abs(value.nanos) // unit
        return -whole if value.nanos < 0 else whole

    return Function(function.name, (*function.overloads, member(DURATION, result=INT, call=call)))


def _milliseconds() -> Function:
    def call(value: Timestamp, zone: str = "UTC") -> int:
        _offset(zone, value.nanos // SECOND)
        return value.nanos % SECOND // 10**6

    of_timestamp = (member(TIMESTAMP, result=INT, call=call), member(TIMESTAMP, STRING, result=INT, call=call))
    return _with_duration(Function("getMilliseconds", of_timestamp), 10**6)


ADDITION: Final = (
    free(DURATION, DURATION, result=DURATION, call=lambda a, b: checked_duration(a.nanos + b.nanos)),
    free(DURATION, TIMESTAMP, result=TIMESTAMP, call=lambda a, b: checked_timestamp(a.nanos + b.nanos)),
    free(TIMESTAMP, DURATION, result=TIMESTAMP, call=lambda a, b: checked_timestamp(a.nanos + b.nanos)),
)
SUBTRACTION: Final = (
    free(DURATION, DURATION, result=DURATION, call=lambda a, b: checked_duration(a.nanos - b.nanos)),
    free(TIMESTAMP, DURATION, result=TIMESTAMP, call=lambda a, b: checked_timestamp(a.nanos - b.nanos)),
    free(TIMESTAMP, TIMESTAMP, result=DURATION, call=lambda a, b: checked_duration(a.nanos - b.nanos)),
)

LIBRARY: Final[Library] = (
    _field("getFullYear", lambda t: t.date().year),
    _field("getMonth", lambda t: t.date().month - 1),
    _field("getDayOfYear", lambda t: t.date().day_of_year - 1),
    _field("getDayOfMonth", lambda t: t.date().day - 1),
    _field("getDate", lambda t: t.date().day),
    _field("getDayOfWeek", lambda t: t.day_of_week),
    _with_duration(_field("getHours", lambda t: t.seconds // 3600 % 24), 3600 * SECOND),
    _with_duration(_field("getMinutes", lambda t: t.seconds // 60 % 60), 60 * SECOND),
    _with_duration(_field("getSeconds", lambda t: t.seconds % 60), SECOND),
    _milliseconds(),
)
