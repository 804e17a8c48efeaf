"""Binding conditions (KEP-5007): devices that are made ready after they are allocated."""

from collections.abc import Hashable

from allocator.check import Check, Refusal
from allocator.outcome import Cause
from allocator.pools import Candidate
from allocator.usage import DeviceUsage

_REFUSAL = Refusal(Cause.BINDING_CONDITIONS)


class BindingCheck(Check):
    """Does the device need the feature gate, which is off?"""

    __slots__ = ()
    cause = Cause.BINDING_CONDITIONS
    subject = "DRADeviceBindingConditions"

    def speaks(self, candidate: Candidate, _: DeviceUsage, /) -> Refusal | None:
        """It has binding conditions."""
        return _REFUSAL if candidate.device.binding_conditions else None

    @staticmethod
    def reads(candidate: Candidate, /) -> Hashable:
        """The conditions."""
        return candidate.device.binding_conditions
