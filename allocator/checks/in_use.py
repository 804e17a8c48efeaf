"""Devices that allocated claims hold as a whole."""

from collections.abc import Hashable
from typing import Final

from allocator.checks.check import Check, Refusal
from allocator.outcome import Cause
from allocator.usage import DeviceUsage

_REFUSAL: Final = Refusal(Cause.IN_USE)

IN_USE: Final = Check(
    Cause.IN_USE,
    lambda _, asked, __, used: _REFUSAL if used.holders > 0 and not asked.request.admin_access else None,
)
"""Admin access does not mind who holds a device, and shares are told by the capacity that they leave."""


def state_of(usage: DeviceUsage | None) -> Hashable:
    """What decisions read of a device's use: 0 if it is free, 1 if it is held and not shared, else all that counts."""
    if usage is None:
        return 0
    if not usage.shares and not usage.consumed:
        return 1
    return usage.holders > 0, bool(usage.shares), frozenset(usage.consumed.items())
