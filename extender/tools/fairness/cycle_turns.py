"""Turns on the event loop: one short piece of work in a cycle of the loop, the callers one after the other."""

import asyncio
from collections import deque


class CycleTurns:
    """Gives turns to pieces of work that take a part of a millisecond, and of which hundreds may come at once.

    All other calls of the event loop go on between two pieces. A caller with many pieces delays another one by one
    piece. A piece that is alone never waits.
    """

    def __init__(self) -> None:
        self._is_taken = False
        """The turn of this cycle."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By caller; the one whose turn is next comes first."""

    def __len__(self) -> int:
        """How many pieces wait."""
        return sum(map(len, self._waiting.values()))

    async def turn(self, caller: str) -> None:
        """Wait for a turn. The piece is what the caller does until it waits for something else."""
        if not self._is_taken:
            self._take_turn()
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        await turn

    def _take_turn(self) -> None:
        self._is_taken = True
        asyncio.get_running_loop().call_soon(self._begin_cycle)

    def _begin_cycle(self) -> None:
        self._is_taken = False
        while self._waiting and not self._is_taken:
            caller = next(iter(self._waiting))
            turns = self._waiting.pop(caller)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns
            if not turn.done():  # else its caller has left
                turn.set_result(None)
                self._take_turn()
