"""Dates outside the years that Python knows: a time zone can move a timestamp there."""

from datetime import date as python_date
from typing import Final, NamedTuple

_DAY: Final = 86400
_CYCLE_DAYS: Final = 146_097
"""After 400 years the calendar repeats."""

_CYCLE_YEARS: Final = 400
_EPOCH: Final = python_date(1970, 1, 1).toordinal()


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
        cycles, day = divmod(self.seconds // _DAY + _EPOCH - 1, _CYCLE_DAYS)
        found = python_date.fromordinal(day + 1)
        day_of_year = found.timetuple().tm_yday
        return Date(found.year + cycles * _CYCLE_YEARS, found.month, found.day, day_of_year)
