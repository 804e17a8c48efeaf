"""The past of usage: what Prometheus has recorded of the metrics of usage before this process began."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import structlog

from allocator.tools import printable
from extender.answers.usage.amounts import MINUTE, MINUTES, Named
from extender.answers.usage.holdings import UNIT
from extender.answers.usage.metrics import HELD, LABELS, PUBLISHED
from extender.answers.usage.usage import STEP, By, Recorded, Usage
from extender.framework.task import BackgroundTask
from extender.tools.metrics import full_name

logger = structlog.get_logger()

_TRIES: Final = 5
_PAUSE: Final = 15.0
"""Seconds before the second try; each further pause is twice as long."""

_LONGEST_NAME: Final = 253


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
    """The query for a day of a metric up to a time, in milliseconds since 1970.

    Each replica counts the same, so the largest counts: one that has just begun has too little. ``rate`` is the mean of
    the time before a value, also if a replica has begun anew within it.
    """
    matchers = f"{{{selector}}}" if selector else ""
    rate = f"rate({full_name(metric)}_total{matchers}[{STEP}m])"
    end = since // (STEP * MINUTE) * STEP * 60
    query = f"max by ({', '.join(LABELS)}) ({rate})"
    return RangeQuery(query, end - (MINUTES // STEP - 1) * STEP * 60, end, STEP * 60)


def recorded(answer: Mapping[str, Any]) -> Iterator[Recorded]:
    """The values of an answer.

    Raises:
        PastError: it is no matrix of our metrics.
    """
    data = answer.get("data")
    if answer.get("status") != "success" or not isinstance(data, dict) or data.get("resultType") != "matrix":
        raise PastError(f"wrong answer: {printable(str(answer.get('error') or 'it is no matrix'))[:200]}")
    try:
        for each in data["result"]:
            labels = [str(each["metric"].get(label, ""))[:_LONGEST_NAME] for label in LABELS]
            for time, value in each["values"]:
                mean, minute = float(value), int(time) // 60 - STEP
                if math.isfinite(mean) and mean >= 0:
                    yield Recorded(By(labels[0]), Named(labels[1], labels[2]), minute, round(mean * UNIT))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise PastError(f"wrong answer: {type(error).__name__} in a series") from error


async def read_past(ask: Ask, since: int, selector: str) -> tuple[Sequence[Recorded], Sequence[Recorded]]:
    """What was held and what was published in the day before a time. Raises PastError."""
    held = await ask(range_query(HELD, since, selector))
    published = await ask(range_query(PUBLISHED, since, selector))
    return list(recorded(held)), list(recorded(published))


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
                self._usage.was(*await read_past(self._ask, since, self._selector))
            except PastError as error:
                logger.warning("the past of usage was not read", problem=str(error), tries=number + 1)
                self._usage.past_is_unknown(str(error))
                await self._sleep(_PAUSE * 2**number)
            else:
                return
