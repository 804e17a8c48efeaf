"""Binding conditions (KEP-5007): devices that are made ready after they are allocated."""

from typing import Final

from allocator.checks.check import Check, Refusal
from allocator.outcome import Cause

_REFUSAL: Final = Refusal(Cause.BINDING_CONDITIONS)

BINDING: Final = Check(
    Cause.BINDING_CONDITIONS,
    lambda _, __, candidate, ___: _REFUSAL if candidate.device.binding_conditions else None,
    fields=("binding_conditions",),
    gate=("binding_conditions", False),
    subject="DRADeviceBindingConditions",
    reads=lambda candidate: candidate.device.binding_conditions,
)
