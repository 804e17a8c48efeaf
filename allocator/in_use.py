"""Devices that allocated claims hold as a whole. Admin access does not mind them."""

from collections.abc import Hashable

from allocator.check import Check, Refusal
from allocator.outcome import Cause
from allocator.pools import Candidate
from allocator.usage import DeviceUsage

_IN_USE = Refusal(Cause.IN_USE)


class InUseCheck(Check):
    """Is the device held? Shares of it do not count."""

    __slots__ = ()
    cause = Cause.IN_USE

    def speaks(self, _: Candidate, used: DeviceUsage, /) -> Refusal | None:
        """An allocation holds all of it."""
        return _IN_USE if used.holders > 0 else None


def state_of(usage: DeviceUsage | None) -> Hashable:
    """What decisions read of a device's use: 0 if it is free, 1 if it is held and not shared, else all that counts."""
    if usage is None:
        return 0
    if not usage.shares and not usage.consumed:
        return 1
    return usage.holders > 0, bool(usage.shares), frozenset(usage.consumed.items())
