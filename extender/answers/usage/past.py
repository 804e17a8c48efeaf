"""The past of usage: what Prometheus has recorded of the metrics of usage before this process began."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias

import structlog

from allocator.tools import printable
from extender.answers.usage.amounts import MINUTE, MINUTES, Named
from extender.answers.usage.holdings import UNIT
from extender.answers.usage.usage import (
    HELD,
    IN_PIECES,
    JUDGED,
    LABELS,
    NAME,
    OBSERVED,
    PLACED,
    PUBLISHED,
    STEP,
    WAITING,
    By,
    Past,
    Recorded,
    Usage,
)
from extender.answers.usage.waits import COARSE_BOUNDS, RecordedWaits
from extender.framework.task import BackgroundTask
from extender.tools.metrics import full_name

logger = structlog.get_logger()

_TRIES: Final = 5
_PAUSE: Final = 15.0
"""Seconds before the second try; each further pause is twice as long."""

_LONGEST_NAME: Final = 253

_BUCKET_OF: Final = {bound: bucket for bucket, bound in enumerate(COARSE_BOUNDS)}


class PastError(Exception):
    """Prometheus does not answer, or its answer is none; the text says why."""


class RangeQuery(NamedTuple):
    """A query over a time.

    Attributes:
        query: in PromQL.
        start, end: seconds since 1970, of the first and the last value.
        step: seconds between two values.
    """

    query: str
    start: int
    end: int
    step: int

    @property
    def parameters(self) -> Mapping[str, str]:
        """Of ``/api/v1/query_range``."""
        return {name: str(value) for name, value in self._asdict().items()}


Ask: TypeAlias = Callable[[RangeQuery], Awaitable[Mapping[str, Any]]]
"""Asks a Prometheus, and returns the document that it answers. Raises PastError."""


def range_query(metric: str, since: int, selector: str) -> RangeQuery:
    """The query for a day of a counter up to a time, in milliseconds since 1970.

    Each replica counts the same, so the largest counts: one that has just begun has too little. ``rate`` is the mean of
    the time before a value, also if a replica has begun anew within it.
    """
    return _of_a_day(f"max by ({', '.join(LABELS)}) (rate({_series(metric, 'total', selector)}[{STEP}m]))", since)


def placed_query(since: int, selector: str) -> RangeQuery:
    """The query for the pods that got their nodes in each `STEP` of a day. Those of steps without any are left out."""
    return _of_a_day(f"max by ({NAME}, le) (increase({_series(PLACED, 'bucket', selector)}[{STEP}m])) > 0", since)


def _series(metric: str, suffix: str, selector: str) -> str:
    return f"{full_name(metric)}_{suffix}" + (f"{{{selector}}}" if selector else "")


def _of_a_day(query: str, since: int) -> RangeQuery:
    end = since // (STEP * MINUTE) * STEP * 60
    return RangeQuery(query, end - (MINUTES // STEP - 1) * STEP * 60, end, STEP * 60)


class _Value(NamedTuple):
    """A value of a series, which is not negative, and the first minute that it is about."""

    labels: Mapping[str, str]
    minute: int
    amount: float


def _values(answer: Mapping[str, Any], names: Sequence[str]) -> Iterator[_Value]:
    data = answer.get("data")
    if answer.get("status") != "success" or not isinstance(data, dict) or data.get("resultType") != "matrix":
        raise PastError(f"wrong answer: {printable(str(answer.get('error') or 'it is no matrix'))[:200]}")
    try:
        for each in data["result"]:
            labels = {name: str(each["metric"].get(name, ""))[:_LONGEST_NAME] for name in names}
            for time, value in each["values"]:
                amount, minute = float(value), int(time) // 60 - STEP
                if math.isfinite(amount) and amount >= 0:
                    yield _Value(labels, minute, amount)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise PastError(f"wrong answer: {type(error).__name__} in a series") from error


def recorded(answer: Mapping[str, Any], by: By | None = None) -> Iterator[Recorded]:
    """The means of an answer; ``by``: what the names of all series are of, if these do not say it themselves.

    Raises:
        PastError: it is no matrix of our metrics.
    """
    for labels, minute, mean in _values(answer, LABELS):
        try:
            of = by or By(labels["by"])
        except ValueError as error:
            raise PastError("wrong answer: a series is by nothing that we know") from error
        name = labels["driver"] if of is By.DRIVER else labels[NAME]
        yield Recorded(of, Named(name, labels["driver"]), minute, round(mean * UNIT))


def recorded_waits(answer: Mapping[str, Any]) -> Sequence[RecordedWaits]:
    """The pods that got their nodes. Raises PastError: the answer is no matrix of our histogram.

    The numbers of Prometheus are estimates, such as 1.07 for one pod. So what is left of a number after rounding counts
    in the step that follows.
    """
    below: dict[tuple[str, int], list[float]] = {}
    for labels, minute, count in _values(answer, (NAME, "le")):
        below.setdefault((labels[NAME], minute), [0.0] * len(COARSE_BOUNDS))[_bucket_of(labels["le"])] = count
    left: dict[str, list[float]] = {}
    found = []
    for (namespace, minute), estimates in sorted(below.items()):
        counts = tuple(accumulate(estimates, max))
        rest = left.setdefault(namespace, [0.0] * len(counts))
        exact = [count - before + more for before, count, more in zip((0.0, *counts), counts, rest, strict=False)]
        whole = [max(0, round(each)) for each in exact]
        left[namespace] = [one - other for one, other in zip(exact, whole, strict=True)]
        found.append(RecordedWaits(namespace, minute, whole))
    return found


def _bucket_of(bound: str) -> int:
    try:
        return _BUCKET_OF[float(bound)]
    except (KeyError, ValueError) as error:
        raise PastError(f'wrong answer: a bucket up to "{printable(bound)}", which we do not have') from error


async def read_past(ask: Ask, since: int, selector: str) -> Past:
    """The day before a time. Raises PastError."""

    async def means(metric: str, by: By | None = None) -> Sequence[Recorded]:
        return list(recorded(await ask(range_query(metric, since, selector)), by))

    return Past(
        await means(HELD),
        await means(PUBLISHED),
        await means(WAITING, By.NAMESPACE),
        await means(IN_PIECES, By.DRIVER),
        await means(OBSERVED, By.DRIVER),
        await means(JUDGED, By.DRIVER),
        recorded_waits(await ask(placed_query(since, selector))),
    )


class PastReader(BackgroundTask):
    """Reads the past once the cluster is known. If that fails, it tries again some times.

    Attributes:
        reading: what reads, from then on. Nobody has to wait for its end.

    Args:
        usage: is told of it.
        ask: asks Prometheus.
        selector: matchers of labels that tell this cluster's metrics apart; empty: none are needed.
        sleep: waits for some seconds.
    """

    def __init__(
        self, usage: Usage, ask: Ask, selector: str, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self._usage = usage
        self._ask = ask
        self._selector = selector
        self._sleep = sleep
        self.reading: asyncio.Task[None] | None = None

    async def tick(self) -> None:
        """Begin to read, once it is known since when this process looks."""
        since = self._usage.since
        if since is not None and self.reading is None:
            self.reading = asyncio.create_task(self._read(since), name="read the past of usage")

    async def _read(self, since: int) -> None:
        for number in range(_TRIES):
            try:
                self._usage.was(await read_past(self._ask, since, self._selector))
            except PastError as error:
                logger.warning("the past of usage was not read", problem=str(error), tries=number + 1)
                self._usage.past_is_unknown(str(error))
                await self._sleep(_PAUSE * 2**number)
            else:
                return
