"""Worlds without chance: ids count, names of hosts are fixed, clocks stand on the virtual time of the loop."""

import secrets
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from random import Random
from typing import Any, Final
from unittest.mock import patch

HOST: Final = "corpus"


@contextmanager
def without_chance() -> Iterator[None]:
    """Within the context, what the standard library draws by chance is counted, and the host has a fixed name."""
    numbers = count(1)

    def text(size: int | None = None) -> str:
        return f"{next(numbers):0{2 * (size or 32)}x}"

    def made_uuid() -> uuid.UUID:
        return uuid.UUID(int=next(numbers), version=4)

    with ExitStack() as stack:
        for module, name, instead in (
            (secrets, "token_hex", text),
            (secrets, "token_urlsafe", text),
            (secrets, "token_bytes", lambda size=32: next(numbers).to_bytes(size, "big")),
            (secrets, "randbelow", lambda _: next(numbers)),
            (uuid, "uuid4", made_uuid),
            (socket, "gethostname", lambda: HOST),
        ):
            stack.enter_context(patch.object(module, name, instead))
        yield


@contextmanager
def clocks(now: Callable[[], float]) -> Iterator[None]:
    """Within the context, objects that are made take this clock for a clock of the machine."""
    with ExitStack() as stack:
        for name in ("monotonic", "perf_counter", "time"):
            stack.enter_context(patch.object(time, name, now))
        yield


class Draw:
    """Draws from a seed; the same on each machine and in each process."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)  # noqa: S311 - worlds need no secrets

    def __call__(self, share: float) -> bool:
        """Whether something happens that happens with this probability."""
        return self._random.random() < share

    def of(self, values: Any) -> Any:
        """One of the values, a sequence."""
        return self._random.choice(values)

    def some(self, values: Any, least: int = 0, most: int | None = None) -> list[Any]:
        """Some of the values, each once, in any order."""
        found = list(values)
        number = self.number(min(least, len(found)), len(found) if most is None else min(most, len(found)))
        return self._random.sample(found, number)

    def number(self, least: int, most: int) -> int:
        """A whole number, both ends included."""
        return self._random.randint(least, most)

    def order(self, values: Any) -> list[Any]:
        """All of the values, in any order."""
        found = list(values)
        self._random.shuffle(found)
        return found
