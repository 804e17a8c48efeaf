"""One evaluation that counts: the device as CEL sees it, variables, the cost so far, and its limits."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from allocator.cel.cost import LIMIT
from allocator.cel.errors import CostLimitError, OutOfTimeError
from allocator.cel.values import DefaultMap, TextMap, Value
from allocator.model.slices.device import Device


def domains(values: Mapping[str, Value]) -> DefaultMap:
    """Values by qualified name as a map of domains; an unknown domain is an empty map."""
    found = DefaultMap()
    for qualified, value in values.items():
        domain, _, name = qualified.partition("/")
        found.setdefault(domain, TextMap())[name] = value
    return found


def device_value(device: Device) -> dict[str, Value]:
    """The whole variable ``device``."""
    return {
        "driver": device.driver,
        "attributes": domains(device.attributes),
        "capacity": domains(device.quantities),
        "allowMultipleAllocations": device.allow_multiple_allocations,
    }


WORK_LIMIT: Final = 10_000_000
"""Limit on the characters that an evaluation produces or reads in operations whose cost does not show this."""

ELEMENT_WORK: Final = 10
"""The number of characters that an element of a list counts as."""

_COST_BETWEEN_LOOKS: Final = 1_000
_WORK_BETWEEN_LOOKS: Final = 10_000
"""Units of work between two looks at the clock, which take about as long as a step."""

Expired: TypeAlias = Callable[[], bool]
"""Whether the time of an evaluation is up."""


def never() -> bool:
    """No limit on time."""
    return False


class Frame:
    """One evaluation: its input, its variables, and what it has cost so far.

    Attributes:
        cost: the cost so far, by upstream's formulas.
        work: the characters and elements so far; code that adds to it directly compares it with `pause`.
        pause: above this work, `look` must be called.
    """

    __slots__ = ("_cost_pause", "_expired", "_view", "cost", "device", "pause", "slots", "work")

    def __init__(self, device: Device, slots: int, expired: Expired = never) -> None:
        self.device = device
        self.slots: list[Value] = [None] * slots
        self.cost = 0
        self.work = 0
        self.pause = _WORK_BETWEEN_LOOKS
        self._cost_pause = _COST_BETWEEN_LOOKS
        self._expired = expired
        self._view: dict[str, Value] | None = None

    def view(self) -> Value:
        """The whole variable ``device``, made at the first use."""
        if self._view is None:
            self._view = device_value(self.device)
        return self._view

    def spend(self, cost: int) -> None:
        """Charge for one step.

        Raises:
            CostLimitError: beyond the limit.
            OutOfTimeError: time is up.
        """
        self.cost += cost
        if self.cost > self._cost_pause:
            self.look()

    def produced(self, size: int) -> None:
        """Count the characters that an operation has built or is about to read.

        Raises:
            CostLimitError: too much in all.
            OutOfTimeError: time is up.
        """
        self.work += size
        if self.work > self.pause:
            self.look()

    def look(self) -> None:
        """Look at the limits and at the clock.

        Raises:
            CostLimitError: too much cost or work.
            OutOfTimeError: time is up.
        """
        if self.cost > LIMIT or self.work > WORK_LIMIT:
            raise CostLimitError
        if self._expired():
            raise OutOfTimeError
        self._cost_pause = min(LIMIT, self.cost + _COST_BETWEEN_LOOKS)
        self.pause = min(WORK_LIMIT, self.work + _WORK_BETWEEN_LOOKS)


Step: TypeAlias = Callable[[Frame], Value]
"""Yields a value, or an `EvaluationError` as a value."""
