"""Devices in use: allocated claims hold them as a whole, so there is no free device for a request."""

from collections.abc import Hashable
from typing import Final

from allocator.checks.check import Check, DeviceState, Refusal
from allocator.model.slices.device import Device
from allocator.obstacles.obstacle import Held, Obstacle
from allocator.reason import Cause
from allocator.usage import DeviceUsage

_CAUSE: Final = Cause("in-use", "no free device for {request}", rank=80, is_temporary=True)
_REFUSAL: Final = Refusal(_CAUSE)


def state_if_held(_: Device, used: DeviceUsage) -> DeviceState:
    """The state of a device that a claim holds as a whole."""
    return DeviceState.CLASH if used.holders > 1 or used.has_shares else DeviceState.ALLOCATED


IN_USE: Final = Check(
    _CAUSE,
    lambda _, asked, __, used: _REFUSAL if used.holders > 0 and not asked.request.admin_access else None,
    state=state_if_held,
    passes_free=True,
    obstacle=Obstacle(_CAUSE, "in use", held=Held.WHOLE),
)
"""Admin access ignores who holds a device. Shares are judged by the capacity that is left (`capacity.py`)."""


def state_of(usage: DeviceUsage) -> Hashable:
    """What decisions read of what is held of a device: 1 if it is held as a whole, else all of it."""
    if not usage.shares and not usage.consumed:
        return 1
    return usage.holders > 0, bool(usage.shares), frozenset(usage.consumed.items())
