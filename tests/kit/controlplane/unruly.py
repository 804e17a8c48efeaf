"""A network and an API server that fail by chance, as `tests.simulation.link` has them; for the proxy.

Requests: refused with 409, 429 or 500 before the API server has seen them; 500 after they were done; lost on the way
there or back; slow; answered by half. Watches: late, cut within an event, and with an event that comes twice.
"""

from collections import Counter
from collections.abc import AsyncIterator
from http import HTTPStatus
from random import Random
from typing import Final

from tests.kit.controlplane.proxy import Action, Exchange, StreamCutError, cut_after, cut_before, half, refuse
from tests.kit.waiting import pause

_SLOW_SECONDS: Final = 2.0
_LATE_SECONDS: Final = 1.0


async def failed_afterwards(exchange: Exchange) -> None:
    """The request is done, and its answer says that it failed."""
    await exchange.forward()
    await refuse(HTTPStatus.INTERNAL_SERVER_ERROR)(exchange)


class Unruly:
    """What befalls requests and watches.

    Args:
        seed: of all draws.
        share: of the requests, and of the parts of watches, that something befalls.

    Attributes:
        counted: what has happened, and how often.
        is_over: nothing happens any more.
    """

    def __init__(self, seed: int, share: float) -> None:
        self._random = Random(seed)
        self._share = share
        self.counted: Counter[str] = Counter()
        self.is_over = False
        self._actions: dict[str, Action] = {
            "429": refuse(HTTPStatus.TOO_MANY_REQUESTS, retry_after=1),
            "500 before": refuse(HTTPStatus.INTERNAL_SERVER_ERROR),
            "lost before": cut_before,
            "lost after": cut_after,
            "half an answer": half,
            "slow": self._slow,
        }
        self._of_writes: dict[str, Action] = {
            "409": refuse(HTTPStatus.CONFLICT),
            "500 after": failed_afterwards,
        }

    def action(self, exchange: Exchange) -> Action | None:
        """What befalls a request; None: nothing."""
        if not self._strikes():
            return None
        is_watch = "watch=true" in exchange.target
        actions = self._actions if exchange.method == "GET" else {**self._actions, **self._of_writes}
        names = [name for name in actions if not (is_watch and name in {"half an answer", "lost after", "slow"})]
        name = self._random.choice(names)
        self.counted[name] += 1
        return actions[name]

    async def passed(self, chunk: bytes) -> AsyncIterator[bytes]:
        """What comes of a part of a watch. Raises StreamCutError."""
        if not self._strikes():
            yield chunk
            return
        is_whole = chunk.endswith(b"\n") and chunk.startswith(b"{")
        fault = self._random.choice(("late", "cut", "twice") if is_whole else ("late", "cut"))
        self.counted[f"watch: {fault}"] += 1
        match fault:
            case "late":
                await pause(self._random.uniform(0.0, _LATE_SECONDS))
                yield chunk
            case "twice":
                yield chunk
                yield chunk
            case _:
                yield chunk[: len(chunk) // 2]
                raise StreamCutError

    def _strikes(self) -> bool:
        return not self.is_over and self._random.random() < self._share

    async def _slow(self, exchange: Exchange) -> None:
        await pause(self._random.uniform(0.1, _SLOW_SECONDS))
        exchange.reply(await exchange.forward())
