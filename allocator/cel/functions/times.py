"""Timestamps and durations."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Function, Library, free, member
from allocator.cel.types import DURATION, INT, STRING, TIMESTAMP
from allocator.cel.values import INT_MAX, INT_MIN, Duration, Timestamp

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
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"[+-]?(?:(?:{_PART.pattern})+|0)")
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(Z|z|[+-]\d\d:\d\d)", re.ASCII
)
_OFFSET: Final = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
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
    offset = 0 if zone in "Zz" else _offset_seconds(zone)
    seconds = (moment - _EPOCH) // timedelta(seconds=1) - offset
    return checked_timestamp(seconds * SECOND + int((fraction or "0")[:9].ljust(9, "0")))


def _offset_seconds(text: str) -> int:
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise EvaluationError(f"unknown time zone {text[:64]!r}")
    sign, hours, minutes = match.groups()
    return (-1 if sign == "-" else 1) * (int(hours) * 3600 + int(minutes) * 60)


def parse_duration(text: str) -> Duration:
    """``1h30m``, ``-1.5s``, as Go writes durations.

    Raises:
        EvaluationError: not a duration, or out of range.
    """
    if _DURATION.fullmatch(text) is None:
        raise EvaluationError(f"cannot parse {text[:64]!r} as a duration")
    total = 0
    for number, unit in _PART.findall(text):
        whole, _, fraction = number.partition(".")
        total += int(whole or "0") * _UNITS[unit] + int(fraction or "0") * _UNITS[unit] // 10 ** len(fraction)
    return checked_duration(-total if text[0] == "-" else total)


def timestamp_text(value: Timestamp) -> str:
    """RFC 3339 in UTC, with as many digits of the second as needed."""
    seconds, nanos = divmod(value.nanos, SECOND)
    moment = _EPOCH + timedelta(seconds=seconds)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return f"{moment:%m-%dT%H:%M:%S}{fraction}Z".join([f"{moment.year:04}-", ""])


def duration_text(value: Duration) -> str:
    """Seconds, e.g. ``1.5s``."""
    seconds, nanos = divmod(abs(value.nanos), SECOND)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return f"{'-' if value.nanos < 0 else ''}{seconds}{fraction}s"


def _zone(name: str) -> tzinfo:
    if ":" in name:
        return timezone(timedelta(seconds=_offset_seconds(name)))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise EvaluationError(f"unknown time zone {name[:64]!r}") from None


def _field(name: str, get: Callable[[datetime], int]) -> Function:
    """A part of a timestamp, in UTC or in a time zone."""

    def call(value: Timestamp, zone: str = "UTC") -> int:
        moment = _EPOCH + timedelta(seconds=value.nanos // SECOND)
        try:
            return get(moment.astimezone(_zone(zone)))
        except OverflowError:
            raise EvaluationError("timestamp overflow") from None

    return Function(
        name,
        (member(TIMESTAMP, result=INT, call=call), member(TIMESTAMP, STRING, result=INT, call=call)),
    )


def _with_duration(function: Function, unit: int) -> Function:
    """The same part of a duration: the whole of it in that unit, rounded towards zero."""

    def call(value: Duration) -> int:
        whole = abs(value.nanos) // unit
        return -whole if value.nanos < 0 else whole

    return Function(function.name, (*function.overloads, member(DURATION, result=INT, call=call)))


def _milliseconds() -> Function:
    def of_timestamp(value: Timestamp, _zone: str = "UTC") -> int:
        return value.nanos % SECOND // 10**6

    def of_duration(value: Duration) -> int:
        whole = abs(value.nanos) % SECOND // 10**6
        return -whole if value.nanos < 0 else whole

    return Function(
        "getMilliseconds",
        (
            member(TIMESTAMP, result=INT, call=of_timestamp),
            member(TIMESTAMP, STRING, result=INT, call=of_timestamp),
            member(DURATION, result=INT, call=of_duration),
        ),
    )


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
    _field("getFullYear", lambda t: t.year),
    _field("getMonth", lambda t: t.month - 1),
    _field("getDayOfYear", lambda t: t.timetuple().tm_yday - 1),
    _field("getDayOfMonth", lambda t: t.day - 1),
    _field("getDate", lambda t: t.day),
    _field("getDayOfWeek", lambda t: t.isoweekday() % 7),
    _with_duration(_field("getHours", lambda t: t.hour), 3600 * SECOND),
    _with_duration(_field("getMinutes", lambda t: t.minute), 60 * SECOND),
    _with_duration(_field("getSeconds", lambda t: t.second), SECOND),
    _milliseconds(),
)
