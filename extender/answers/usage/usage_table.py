"""The tables of usage: devices that were held, and how long pods waited, for a window and for each step of it."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from operator import truediv
from typing import Final, NamedTuple

from extender.answers.usage.amounts import MINUTE, MINUTES, NOTHING, Named, Sums
from extender.answers.usage.holdings import UNIT
from extender.answers.usage.usage import RECORDED, By, Usage, UsageOfDay
from extender.answers.usage.waits import Counts
from extender.tools.table import Item, Row, TableView, duration, matches

_HOUR: Final = 60 * MINUTE
_LENGTH: Final = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,4})m)?")

ALL: Final = "(all)"
"""In place of the names of namespaces."""

DAY: Final = "24h"

UNKNOWN_PIECES: Final = (
    "what is free in pieces is not known: no scheduler has asked this replica about the pods that wait"
)


def minutes_of(text: str) -> int:
    """The minutes of a length of time such as ``24h``, ``90m`` or ``1h30m``.

    Raises:
        ValueError: it is none, or not between a minute and a day.
    """
    found = _LENGTH.fullmatch(text)
    minutes = int(found[1] or 0) * 60 + int(found[2] or 0) if found and text else 0
    if not 1 <= minutes <= MINUTES:
        raise ValueError(f'"{text}" is not a length of time from 1m to {DAY}, such as 90m or 6h')
    return minutes


class Step(NamedTuple):
    """A part of the window.

    Attributes:
        first, last: its minutes, both included, since 1970.
        observed: for how many milliseconds of it the cluster was watched.
        judged: for how many it was known what is in pieces.
    """

    first: int
    last: int
    observed: int
    judged: int

    @property
    def time(self) -> str:
        """When it begins."""
        return _time(self.first * MINUTE)


@dataclass(frozen=True, slots=True)
class Window:
    """The time of a table.

    Attributes:
        minutes: how long it is; the minute that is going on is the last one.
        step: the minutes of a row; 0: a row has all of them.
    """

    minutes: int = MINUTES
    step: int = 0

    def steps(self, day: UsageOfDay) -> Iterator[Step]:
        """The steps that were observed, the earliest first. They begin at multiples of their length."""
        now = day.now // MINUTE
        first = now - self.minutes + 1
        while first <= now:
            last = min(now, first - first % self.step + self.step - 1) if self.step else now
            observed = sum(day.observed.of(first, last))
            if observed:
                yield Step(first, last, observed, sum(day.judged.of(first, last)))
            first = last + 1


def usage_columns(by: By, *, stepped: bool) -> tuple[str, ...]:
    """The columns of usage; ``stepped``: a row is about a step of the window."""
    columns = dict.fromkeys((by.value, "driver", "devices", "of", "share", "peak", "hours"))
    return (*_time_column(stepped=stepped), *columns, *(("inPieces",) if by is By.DRIVER else ()))


def waits_columns(*, stepped: bool) -> tuple[str, ...]:
    """The columns of waits."""
    return (*_time_column(stepped=stepped), "namespace", "waiting", "placed", "p50", "p95")


def _time_column(*, stepped: bool) -> tuple[str, ...]:
    return ("time",) if stepped else ()


def usage_view(usage: Usage, by: By, window: Window, *, names: bool = True, wanted: Mapping[str, str]) -> TableView:
    """The devices that claims held.

    Args:
        usage: of the cluster.
        by: what a row is about.
        window: the time.
        names: whether the names of namespaces may be told.
        wanted: by column, the only value that is wanted; empty: any.
    """
    hides = by is By.NAMESPACE and not names

    def rows() -> Iterator[Row]:
        day = usage.day(By.DRIVER if hides else by)
        names = {name: ALL if hides else name.name for name in _names(by, window, day)}
        for step in window.steps(day):
            of_step = _UsageOfStep(step, day)
            for name, shown in names.items():
                if matches(wanted.get("driver", ""), name.driver) and matches(wanted.get(by.value, ""), shown):
                    at = {"time": step.time} if window.step else {}
                    yield Row((step.time, *name), partial(_usage_item, at, by, name, shown, of_step))

    columns = usage_columns(by, stepped=bool(window.step))
    return TableView(columns, rows(), CELLS, lambda: note(usage, window, by))


def _names(by: By, window: Window, day: UsageOfDay) -> Sequence[Named]:
    """The names that had something within the window: devices that they held, or devices that there were."""
    last = day.now // MINUTE
    sums = [day.held, day.published] if by in {By.MODEL, By.DRIVER} else [day.held]
    of_window = (name for each in sums for name, of in each.items() if any(of.of(last - window.minutes + 1, last)))
    return sorted(set(of_window))


class _UsageOfStep:
    """The usage of a step. What its rows share is worked out once."""

    def __init__(self, step: Step, day: UsageOfDay) -> None:
        self.step = step
        self._day = day
        self._published: dict[Named, int] = {}

    @cached_property
    def seen(self) -> Sequence[float]:
        """For how long each minute was watched; infinite: it was not."""
        return [each or math.inf for each in self._day.observed.of(self.step.first, self.step.last)]

    def held(self, name: Named) -> Sequence[int]:
        """What was held, by minute."""
        return self._of(self._day.held, name)

    def published(self, name: Named) -> int:
        """What there was, of a model or of a driver."""
        if name not in self._published:
            self._published[name] = sum(self._of(self._day.published, name))
        return self._published[name]

    def in_pieces(self, driver: str) -> float | None:
        """The devices that were in pieces on average; None: it was not known."""
        judged = self.step.judged
        return _mean(sum(self._of(self._day.in_pieces, Named(driver, driver))), judged) if judged else None

    def _of(self, sums: Mapping[Named, Sums], name: Named) -> Sequence[int]:
        return sums.get(name, NOTHING).of(self.step.first, self.step.last)


def _usage_item(at: Item, by: By, name: Named, shown: str, of_step: _UsageOfStep) -> Item:
    held, observed = of_step.held(name), of_step.step.observed
    whole = name if by in {By.MODEL, By.DRIVER} else Named(name.driver, name.driver)
    devices, published = (_mean(each, observed) for each in (sum(held), of_step.published(whole)))
    item = {
        **at,
        by.value: shown,
        "driver": name.driver,
        "devices": devices,
        "of": published,
        "share": round(devices / published, 4) if published else None,
        "peak": round(max(map(truediv, held, of_step.seen)) / UNIT, 3),
        "hours": round(sum(held) / UNIT / _HOUR, 3),
    }
    if by is By.DRIVER:
        item["inPieces"] = of_step.in_pieces(name.driver)
    return item


def _mean(total: int, milliseconds: int) -> float:
    return round(total / UNIT / milliseconds, 3) if milliseconds else 0.0


def waits_view(usage: Usage, window: Window, *, names: bool = True, namespace: str = "") -> TableView:
    """How long pods with devices waited for a node.

    Args:
        usage: of the cluster.
        window: the time.
        names: whether the names of namespaces may be told.
        namespace: the only one that is wanted; empty: all.
    """

    def rows() -> Iterator[Row]:
        day = usage.day(By.DRIVER)
        for step in window.steps(day):
            counts, waiting = day.waits(step.first, step.last), {name.name: each for name, each in day.waiting.items()}
            for shown, among in _rows(sorted({*counts, *waiting}), names=names):
                if not matches(namespace, shown):
                    continue
                waited = sum(sum(waiting.get(each, NOTHING).of(step.first, step.last)) for each in among)
                found = [counts[each].counts for each in among if each in counts]
                of_all = Counts(tuple(map(sum, zip(*found, strict=True))))
                if waited or of_all.pods:
                    at = {"time": step.time} if window.step else {}
                    yield Row((step.time, shown), partial(_waits_item, at, shown, waited, of_all, step))

    return TableView(waits_columns(stepped=bool(window.step)), rows(), CELLS, lambda: note(usage, window, By.NAMESPACE))


def _rows(namespaces: Sequence[str], *, names: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """The rows, each with the namespaces whose pods count in it."""
    if names:
        yield from ((each, (each,)) for each in namespaces)
    elif namespaces:
        yield ALL, namespaces


def _waits_item(at: Item, namespace: str, waited: int, counts: Counts, step: Step) -> Item:
    half, most = counts.quantile(0.5), counts.quantile(0.95)
    return {
        **at,
        "namespace": namespace,
        "waiting": _mean(waited * UNIT, step.observed),
        "placed": counts.pods,
        "p50": None if half is None else round(half, 1),
        "p95": None if most is None else round(most, 1),
    }


def note(usage: Usage, window: Window, by: By) -> str:
    """From when on a table by this is known, if not for the whole window, and what of it is not known."""
    day = usage.day(By.DRIVER)
    if day.since is None:
        return "nothing is known yet: this replica has not read the cluster, or does not watch it"
    knows_pieces = by is not By.DRIVER or any(day.judged.of(day.now // MINUTE - window.minutes + 1, day.now // MINUTE))
    return "; ".join(filter(None, (_beginning(day, day.since, window), "" if knows_pieces else UNKNOWN_PIECES)))


def _beginning(day: UsageOfDay, since: int, window: Window) -> str:
    if since // MINUTE <= day.now // MINUTE - window.minutes:
        return ""
    began = f"{_time(since)}, when this replica began to watch"
    if not day.past:
        return f"since {began}"
    return f"before {began}, as Prometheus has it" if day.past == RECORDED else f"since {began}; {day.past}"


def _time(milliseconds: int) -> str:
    found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return found.strftime("%Y-%m-%dT%H:%M:%SZ")


def _share(share: float) -> str:
    return f"{100 * share:.0f}%"


def _number(number: float) -> str:
    return f"{number:,.1f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds < 10 else duration(round(seconds))


CELLS: Final[Mapping[str, Callable[[float], str]]] = {
    **dict.fromkeys(("devices", "of", "peak", "hours", "inPieces", "waiting"), _number),
    **dict.fromkeys(("p50", "p95"), _seconds),
    "share": _share,
}
"""How the text shows numbers."""
