"""Answers that are remembered for seconds, in bounded memory; whoever asks the same at the same time waits for one."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from allocator.tools import Recent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Seconds for which answers are remembered.

    Attributes:
        good: of an answer that lets a caller in.
        bad: of any other answer. It is shorter, because a right may just have been given.
    """

    good: float = 10.0
    bad: float = 2.0


class Answers(Generic[T]):
    """Answers by key.

    Good and bad answers have memories of their own: callers that are refused make nobody else forgotten.

    Args:
        is_good: whether an answer lets a caller in.
        clock: seconds, from any point.
        limit: the most good answers, and the most bad ones.
    """

    def __init__(
        self,
        is_good: Callable[[T], bool],
        clock: Callable[[], float],
        *,
        lifetimes: Lifetimes = Lifetimes(),
        limit: int = 1024,
    ) -> None:
        self._is_good = is_good
        self._clock = clock
        self._lifetimes = lifetimes
        self._good: Recent[tuple[float, T]] = Recent(limit)
        self._bad: Recent[tuple[float, T]] = Recent(limit)
        self._asking: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]], may_ask: Callable[[], None]) -> T:
        """The answer for a key: remembered, or asked for.

        Args:
            key: what is asked; it should be short, because it is kept.
            ask: gets the answer; what it raises is raised here, and not remembered.
            may_ask: called before a new question is asked; it may raise an error instead. A question is not new
                if its latest answer was good.
        """
        for memory in (self._good, self._bad):
            found = memory.find(key)
            if found is not None and found[0] > self._clock():
                return found[1]
        asking = self._asking.get(key)
        if asking is None:
            if self._good.find(key) is None:
                may_ask()
            asking = asyncio.create_task(self._ask(key, ask))
            self._asking[key] = asking
            asking.add_done_callback(lambda task: self._done(key, task))
        # A caller that leaves takes nothing from others that wait for the same.
        return await asyncio.shield(asking)

    def _done(self, key: Hashable, asking: asyncio.Task[T]) -> None:
        self._asking.pop(key, None)
        if not asking.cancelled():
            asking.exception()  # if all callers have left, nobody else looks at it

    async def _ask(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        answer = await ask()
        is_good = self._is_good(answer)
        memory, lifetime = (self._good, self._lifetimes.good) if is_good else (self._bad, self._lifetimes.bad)
        if not is_good:
            self._good.forget(key)
        memory.keep(key, (self._clock() + lifetime, answer))
        return answer
