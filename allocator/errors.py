"""Errors that carry data: claim, request, device. The text is made from the data."""

from allocator.model.devices import DeviceId
from allocator.model.problems import AllocatorError


class InvalidClaimError(AllocatorError):
    """A claim that no node can serve: a missing class, a feature that is off, too many devices.

    `allocator.search.plan` has the reasons.
    """

    def __init__(self, claim: str, request: str, reason: str) -> None:
        self.claim = claim
        self.request = request
        self.reason = reason
        where = f"claim {claim}, request {request}" if request else f"claim {claim}"
        super().__init__(f"{where}: {reason}")


def missing_class(name: str) -> str:
    """The reason for a device class that does not exist, also for callers that look at classes before a search."""
    return f"device class {name} does not exist"


class SelectorError(AllocatorError):
    """A CEL expression of a class, request or derived attribute does not compile, or fails on a device.

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
    """A contradiction between claim and node that must not pass as a "no"; other nodes may serve the claim.

    Examples: all devices of a pool that is being updated; a constraint that two of all devices violate.
    """

    def __init__(self, claim: str, request: str, reason: str, device: DeviceId | None = None) -> None:
        self.claim = claim
        self.request = request
        self.reason = reason
        self.device = device
        on = f" on device {device}" if device else ""
        super().__init__(f"claim {claim}, request {request}: {reason}{on}")


class CapacityError(NodeUnsuitableError):
    """A request for capacity that the device's range can't express: too large, too fine, or negative."""


class SearchLimitError(AllocatorError):
    """The search reached a limit: the answer is neither yes nor no."""

    def __init__(self, steps: int, limit: str) -> None:
        self.steps = steps
        self.limit = limit
        super().__init__(f"search stopped by the limit on {limit} after {steps} steps")
