"""Verbs that are written for asyncio, as methods that block.

Their code awaits nothing but calls. If the calls block, the code never gives up control, so it needs no event loop.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Verbs = TypeVar("_Verbs")


class Blocking(Generic[_Verbs]):
    """A session that blocks.

    Attributes:
        verbs: what the session can be asked, written for asyncio, over calls that block.
    """

    def __init__(self, verbs: _Verbs) -> None:
        self.verbs = verbs


def blocking(
    verb: Callable[Concatenate[_Verbs, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Blocking[_Verbs], _P], _T]:
    """A verb as a method of a session that blocks."""

    @wraps(verb)
    def method(self: Blocking[_Verbs], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        work = verb(self.verbs, *args, **kwargs)
        while True:
            try:
                work.send(None)
            except StopIteration as end:
                answer: _T = end.value
                return answer

    return method
