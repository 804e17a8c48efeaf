"""Binding conditions (KEP-5007): devices that are made ready after they are allocated."""

from typing import Final

from allocator.checks.check import Check, Refusal
from allocator.obstacles.obstacle import Obstacle
from allocator.reason import Cause

_GATE: Final = "DRADeviceBindingConditions"
_CAUSE: Final = Cause("binding-conditions", "device binding conditions are off, {request} needs them", rank=110)
_REFUSAL: Final = Refusal(_CAUSE)

BINDING: Final = Check(
    _CAUSE,
    lambda _, __, candidate, ___: _REFUSAL if candidate.device.binding_conditions else None,
    fields=("binding_conditions",),
    gate=("binding_conditions", False),
    obstacle=Obstacle(_CAUSE, f"with binding conditions, but the feature gate {_GATE} is off", gate=_GATE),
    reads=lambda candidate: candidate.device.binding_conditions,
)
