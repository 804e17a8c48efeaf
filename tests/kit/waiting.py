"""Waiting for something outside of the test: asked again and again, for a stated time at most.

The only real pauses of tests are here.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

_T = TypeVar("_T")

INTERVAL = 0.05
"""Seconds between two questions."""


class WaitError(AssertionError):
    """What was waited for did not come."""


def wait_until(probe: Callable[[], bool], what: str, *, within: float) -> float:
    """Ask ``probe`` until it says yes.

    Args:
        probe: may raise `WaitError` to give up at once.
        what: named in the error.
        within: seconds.

    Returns:
        The seconds that it took.

    Raises:
        WaitError: not within that time.
    """
    started = time.monotonic()
    while not probe():
        if time.monotonic() - started > within:
            raise WaitError(f"{what}: not within {within:g} s")
        time.sleep(INTERVAL)
    return time.monotonic() - started


async def wait_for_answer(
    ask: Callable[[], Awaitable[_T]],
    is_enough: Callable[[_T], bool],
    what: str,
    *,
    within: float,
    every: float = INTERVAL,
) -> _T:
    """Ask until the answer is enough; as `wait_until`, in an event loop.

    Args:
        ask: what is asked again and again.
        is_enough: whether an answer is the one that was waited for.
        what: named in the error, with the last answer.
        within: seconds.
        every: seconds between two questions.

    Raises:
        WaitError: not within that time.
    """
    until = asyncio.get_running_loop().time() + within
    while not is_enough(answer := await ask()):
        if asyncio.get_running_loop().time() > until:
            raise WaitError(f"{what}: not within {within:g} s; last answer: {answer}")
        await asyncio.sleep(every)
    return answer


async def answers_during(ask: Callable[[], Awaitable[_T]], *, seconds: float) -> list[_T]:
    """Ask again and again for a time in which something might change.

    Args:
        ask: what is asked.
        seconds: how long; the last question comes after them.

    Returns:
        The answers in their order, equal ones in a row only once: a single answer if nothing has changed.
    """
    until = asyncio.get_running_loop().time() + seconds
    answers = [await ask()]
    while asyncio.get_running_loop().time() < until:
        await asyncio.sleep(INTERVAL)
        answers += [answer] if (answer := await ask()) != answers[-1] else []
    return answers


async def pause(seconds: float) -> None:
    """Let real time pass, where a pause of a random length is the subject of a test."""
    await asyncio.sleep(seconds)
