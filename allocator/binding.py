"""Binding conditions (KEP-5007): devices that are made ready after they are allocated."""

from typing import Final

from allocator.check import Asked, Check, Refusal, Situation
from allocator.outcome import Cause
from allocator.pools import Candidate
from allocator.usage import DeviceUsage

_REFUSAL: Final = Refusal(Cause.BINDING_CONDITIONS)


def _speaks(_: Situation, __: Asked, candidate: Candidate, ___: DeviceUsage) -> Refusal | None:
    return _REFUSAL if candidate.device.binding_conditions else None


BINDING: Final = Check(
    Cause.BINDING_CONDITIONS,
    _speaks,
    fields=("binding_conditions",),
    gate=("binding_conditions", False),
    subject="DRADeviceBindingConditions",
    reads=lambda candidate: candidate.device.binding_conditions,
)
