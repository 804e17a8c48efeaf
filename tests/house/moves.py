"""How far a call travels: the modules that it enters, and its moves from module to module.

What counts:

- A module of the project is one of `allocator` or `extender`. It is entered if a function that is written in it runs.
  Methods that are generated, such as ``__init__`` of a dataclass, are not written in a module: to make a value is no
  move.
- A move is a call of a function whose module is another one than that of its caller. The caller is the nearest function
  of the project on the stack: the functions of libraries between both (asyncio, starlette, contextlib) are passed over.
  Where there is none (the first call from outside, and what asyncio starts on its own), there is no move.
- A generator or a coroutine is called once. That it goes on after a ``yield`` or an ``await`` is no further call.
- What is written in C calls nothing that is seen here, except functions of Python that it is given.
- One thread is traced, so what is measured runs in one thread.
"""

import dis
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Final

PROJECT: Final = frozenset({"allocator", "extender"})
_GENERATED: Final = "<string>"
"""The file of code that a dataclass or a named tuple has generated."""

_RESUME: Final = dis.opmap["RESUME"]
_AGAIN: Final = 3
"""The bits of an argument of RESUME that are 0 at the begin of a function, and not 0 after a yield or an await."""


@dataclass
class Travel:
    """What a call has entered.

    Attributes:
        entered: the modules, in the order in which they were entered first.
        moves: how often each pair of modules, caller and callee, was a move.
    """

    entered: dict[str, None] = field(default_factory=dict)
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)

    def modules_of(self, package: str) -> int:
        """How many modules of a package were entered."""
        return sum(each.partition(".")[0] == package for each in self.entered)


@contextmanager
def traced() -> Iterator[Travel]:
    """Follow what this thread calls within the context."""
    travel = Travel()
    modules: dict[CodeType, str] = {}

    def module_of(frame: FrameType) -> str:
        """The module of a frame, if it is one of the project; else an empty text."""
        code = frame.f_code
        found = modules.get(code)
        if found is None:
            name = frame.f_globals.get("__name__", "")
            is_ours = name.partition(".")[0] in PROJECT and code.co_filename != _GENERATED
            found = modules[code] = name if is_ours else ""
        return found

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or not (module := module_of(frame)) or not _begins(frame):
            return
        travel.entered.setdefault(module)
        above = frame.f_back
        while above is not None and not module_of(above):
            above = above.f_back
        if above is not None and (caller := module_of(above)) != module:
            travel.moves[caller, module] += 1

    sys.setprofile(profile)
    try:
        yield travel
    finally:
        sys.setprofile(None)


def _begins(frame: FrameType) -> bool:
    """Whether a function begins here; otherwise it goes on after a yield or an await."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at] == _RESUME and not code[at + 1] & _AGAIN
