"""Tallies: how many devices of each model are left, as one number. Tallies of parts of a node are added up.

Each device model has some bits of the number. So what is left on thousands of nodes is a sum for each, and few
leftovers have to be built.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from allocator.checks.counters import CounterKey
from allocator.model.devices import Device
from allocator.policies.leftover import NOTHING_LEFT, DeviceModel, Leftover, Parts, model_of

_BITS: Final = 24
"""Bits for each device model: no node has that many devices."""

_FREE: Final = 1.0
"""The room of a device that is not shared."""

_MAX_KNOWN: Final = 4096
"""Leftovers that are remembered; at more, all are forgotten."""


class Tallies:
    """The device models of some devices that nobody shares.

    Args:
        reads: the attributes by which devices are told apart; qualified names.
        full: the full values of all counters that the devices consume.
    """

    def __init__(self, reads: Sequence[str], full: Mapping[CounterKey, int]) -> None:
        self._reads = reads
        self._parts = Parts(full)
        self._numbers: dict[DeviceModel, int] = {}
        self._leftovers: dict[int, Leftover] = {0: NOTHING_LEFT}

    def of(self, device: Device) -> int:
        """The tally of a device that is left."""
        model = model_of(device, self._reads, self._parts.of(device), is_shared=False)
        return 1 << _BITS * self._numbers.setdefault(model, len(self._numbers))

    def leftover(self, tally: int) -> Leftover:
        """What is left; the same object for equal tallies, as long as it is remembered."""
        found = self._leftovers.get(tally)
        if found is None:
            if len(self._leftovers) >= _MAX_KNOWN:
                self._leftovers = {0: NOTHING_LEFT}
            found = self._leftovers[tally] = self._built(tally)
        return found

    def _built(self, tally: int) -> Leftover:
        counts = {(model, _FREE): tally >> _BITS * number & (1 << _BITS) - 1 for model, number in self._numbers.items()}
        return frozenset((kind, count) for kind, count in counts.items() if count)
