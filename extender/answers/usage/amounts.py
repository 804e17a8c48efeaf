"""Amounts over the last day, by name: exact to the millisecond, summed by minute, in bounded memory.

An amount changes at moments. In between, its sum over time grows by amount times milliseconds: nothing is sampled.
"""

from array import array
from collections.abc import Iterator, Mapping
from operator import add
from typing import Final, NamedTuple

MINUTES: Final = 24 * 60
"""The minutes that are remembered, with the one that is going on."""

MINUTE: Final = 60_000
"""A minute in milliseconds, the unit of all times here."""

DAY: Final = MINUTES * MINUTE

OTHERS: Final = "(others)"
"""The name of the row in which the smallest names are summed."""

_MOST_OTHERS: Final = 16
"""Rows of others, one for each driver."""


class Named(NamedTuple):
    """The name of an amount: of a namespace, for example, and the driver of the devices."""

    name: str
    driver: str


class Minutes:
    """One amount over the last day.

    Args:
        now: when it begins; it was 0 before.

    Attributes:
        level: the amount now.
        total: its sum over the last day: amount times milliseconds.
        ever: its sum since it began, without what is known from elsewhere.
    """

    __slots__ = ("_at", "_sums", "ever", "level", "total")

    def __init__(self, now: int) -> None:
        self._at = now
        self._sums = array("q", bytes(8 * MINUTES))
        self.level = 0
        self.total = 0
        self.ever = 0

    def change(self, by: int, now: int) -> None:
        """The amount changes now. A time before that of the last change counts as the latter."""
        self.advance(now)
        self.level += by

    def advance(self, now: int) -> None:
        """Sum up to now."""
        at, self._at = self._at, max(self._at, now)
        self.ever += self.level * (self._at - at)
        if now // MINUTE - at // MINUTE >= MINUTES:
            self._sums, self.total = array("q", bytes(8 * MINUTES)), 0
            at = (now // MINUTE - MINUTES + 1) * MINUTE
        while at < now:
            end = min(now, (at // MINUTE + 1) * MINUTE)
            self._add(at // MINUTE, self.level * (end - at))
            at = end
            if at % MINUTE == 0:
                self._forget(at // MINUTE)

    def put(self, minute: int, amount: int) -> None:
        """Add to a minute what is known of it from elsewhere, if the minute is remembered."""
        if self._at // MINUTE - MINUTES < minute <= self._at // MINUTE:
            self._add(minute, amount)

    def take(self, other: "Minutes", now: int) -> None:
        """Add another amount: its past and what it is now."""
        self.advance(now)
        other.advance(now)
        self._sums = array("q", map(add, self._sums, other._sums))
        self.level += other.level
        self.total += other.total

    def sums(self, now: int) -> "Sums":
        """The sums of the last day."""
        self.advance(now)
        return Sums(self._at // MINUTE, self._sums[:])

    def _add(self, minute: int, amount: int) -> None:
        self._sums[minute % MINUTES] += amount
        self.total += amount

    def _forget(self, minute: int) -> None:
        """A minute begins, in the place of the one a day before."""
        self.total -= self._sums[minute % MINUTES]
        self._sums[minute % MINUTES] = 0


class Sums(NamedTuple):
    """Sums by minute, as they were at one moment.

    Attributes:
        last: the number of the last minute, since 1970.
        sums: in the order of the numbers, each modulo the length.
    """

    last: int
    sums: "array[int]"

    def of(self, first: int, last: int) -> list[int]:
        """The sums of the minutes from one to another, both included. A minute that is not remembered has 0."""
        begin, end = max(first, self.last - MINUTES + 1), min(last, self.last)
        if begin > end:
            return [0] * (last - first + 1)
        before, after = begin % MINUTES, end % MINUTES + 1
        found = self.sums[before:after] if before < after else self.sums[before:] + self.sums[:after]
        return [0] * (begin - first) + found.tolist() + [0] * (last - end)


NOTHING: Final = Sums(0, array("q", bytes(8 * MINUTES)))


class Amounts:
    """Amounts by name. The largest names have rows of their own, all others share one for each driver.

    What counts is the mean of the last day and what a name has now. So nobody drives a name with much out of its row by
    making many names with little.

    Args:
        most: rows of names.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._levels: dict[Named, int] = {}
        """The amount of each name that has some, also of those without a row."""
        self._rows: dict[Named, Minutes] = {}
        self._others: dict[str, Minutes] = {}

    def change(self, name: Named, by: int, now: int) -> None:
        """The amount of a name changes now."""
        before = self._levels.pop(name, 0)
        if before + by:
            self._levels[name] = before + by
        self._row(name, before, before + by, now).change(by, now)

    def put(self, name: Named, minute: int, amount: int, now: int) -> None:
        """Add to a minute of a name what is known of it from elsewhere."""
        level = self._levels.get(name, 0)
        row = self._row(name, level, max(level, amount // MINUTE), now)
        row.advance(now)
        row.put(minute, amount)

    def advance(self, now: int) -> None:
        """Sum up to now."""
        for each in (*self._rows.values(), *self._others.values()):
            each.advance(now)

    def sums(self, now: int) -> Mapping[Named, Sums]:
        """The sums of the last day, of each name that had some."""
        return {name: row.sums(now) for name, row in self._named() if row.total or row.level}

    def levels(self) -> Mapping[Named, int]:
        """The amounts now, by name and with the others."""
        return {name: row.level for name, row in self._named() if row.level}

    def ever(self, now: int) -> Mapping[Named, int]:
        """The sums since each row began. They only grow, as counters do."""
        self.advance(now)
        return {name: row.ever for name, row in self._named()}

    def _named(self) -> Iterator[tuple[Named, Minutes]]:
        yield from self._rows.items()
        yield from ((Named(OTHERS, driver), row) for driver, row in self._others.items())

    def _row(self, name: Named, level: int, soon: int, now: int) -> Minutes:
        """The row of a name that has an amount, and is to have another one soon."""
        found = self._rows.get(name)
        if found is not None:
            return found
        if name.name == OTHERS:
            return self._of_others(name.driver, now)
        if len(self._rows) >= self._most:
            least = min(self._rows, key=self._weight)
            if soon * DAY <= self._weight(least):
                return self._of_others(name.driver, now)
            self._of_others(least.driver, now).take(self._rows.pop(least), now)
        made = self._rows[name] = Minutes(now)
        if level:
            self._of_others(name.driver, now).change(-level, now)
            made.change(level, now)
        return made

    def _weight(self, name: Named) -> int:
        row = self._rows[name]
        return row.total + row.level * DAY

    def _of_others(self, driver: str, now: int) -> Minutes:
        if driver not in self._others and len(self._others) >= _MOST_OTHERS:
            driver = ""
        if driver not in self._others:
            self._others[driver] = Minutes(now)
        return self._others[driver]
