"""One evaluation that counts: what it reads, what it has spent, and the limits on that."""

from collections.abc import Callable
from typing import Final, TypeAlias

from allocator.cel.cost import LIMIT
from allocator.cel.errors import CostLimitError, EvaluationError
from allocator.cel.inputs import device_value
from allocator.cel.values import Value
from allocator.model import Device

WORK_LIMIT: Final = 10_000_000
"""How many characters an evaluation may produce by operations whose cost does not tell."""

ELEMENT_WORK: Final = 10
"""An element of a list counts as so many characters."""


class Frame:
    """One evaluation: its input, its variables, and what it has cost so far."""

    __slots__ = ("_view", "cost", "device", "slots", "work")

    def __init__(self, device: Device | None, slots: int) -> None:
        self.device = device
        self.slots: list[Value] = [None] * slots
        self.cost = 0
        self.work = 0
        self._view: dict[str, Value] | None = None

    def view(self) -> Value:
        """The whole variable ``device``; made once, if at all."""
        if self.device is None:
            return EvaluationError("no device")
        if self._view is None:
            self._view = device_value(self.device)
        return self._view

    def spend(self, cost: int) -> None:
        """Charge for one step.

        Raises:
            CostLimitError: beyond the limit.
        """
        self.cost += cost
        if self.cost > LIMIT:
            raise CostLimitError

    def produced(self, size: int) -> None:
        """Count what an operation has built.

        Raises:
            CostLimitError: too much in all.
        """
        self.work += size
        if self.work > WORK_LIMIT:
            raise CostLimitError


Step: TypeAlias = Callable[[Frame], Value]
"""Yields a value, or an `EvaluationError` as a value."""
