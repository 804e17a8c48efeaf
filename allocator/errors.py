"""Errors that carry data: who is at fault, where, and with which value. The text is made from the data."""

from allocator.model.devices import DeviceId
from allocator.model.problems import AllocatorError


class InvalidClaimError(AllocatorError):
    """A claim that can never be allocated as it stands, wherever: a missing class, a feature that is off, too much."""

    def __init__(self, claim: str, request: str, reason: str) -> None:
        self.claim = claim
        self.request = request
        self.reason = reason
        where = f"claim {claim}, request {request}" if request else f"claim {claim}"
        super().__init__(f"{where}: {reason}")


class SelectorError(AllocatorError):
    """A CEL expression of a class, request or derived attribute that does not compile or fails on a device.

    Attributes:
        source: ``class NAME, selector 0``, ``selector 1`` or ``derived attribute NAME``.
        device: None when the expression does not compile.
    """

    def __init__(self, claim: str, request: str, source: str, device: DeviceId | None, message: str) -> None:
        self.claim = claim
        self.request = request
        self.source = source
        self.device = device
        self.message = message
        on = f" on device {device}" if device else ""
        super().__init__(f"claim {claim}, request {request}: {source}{on}: {message}")


class NodeUnsuitableError(AllocatorError):
    """What this node offers contradicts the claim in a way that must not pass silently; others may do.

    Examples: "all devices" over a pool that is being updated; a constraint that two of "all devices" violate.
    """

    def __init__(self, claim: str, request: str, reason: str, device: DeviceId | None = None) -> None:
        self.claim = claim
        self.request = request
        self.reason = reason
        self.device = device
        on = f" on device {device}" if device else ""
        super().__init__(f"claim {claim}, request {request}: {reason}{on}")


class CapacityError(NodeUnsuitableError):
    """A capacity that cannot be computed in the device's own terms: too large, too fine, or negative."""


class SearchLimitError(AllocatorError):
    """The search was stopped before it knew: neither yes nor no."""

    def __init__(self, steps: int, limit: str) -> None:
        self.steps = steps
        self.limit = limit
        super().__init__(f"search stopped by the limit on {limit} after {steps} steps")
