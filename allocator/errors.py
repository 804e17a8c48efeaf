"""Errors with data: whose fault, where, and which value. The text and the reason are made from the data."""

from collections.abc import Callable
from typing import Final

from allocator.model.devices import DeviceId
from allocator.reason import Cause, Reason, request_noun
from allocator.tools.fields import AllocatorError

MISSING_CLASS: Final = Cause("missing-class", "device class {detail} does not exist")
STOPPED: Final = Cause("stopped", "search stopped by the limit on {detail}")
_INVALID_CLAIM: Final = Cause("invalid-claim", "claim {claim}: {detail}")
_INVALID_REQUEST: Final = Cause("invalid-request", "claim {claim}, {request}: {detail}")
_SELECTOR: Final = Cause("selector-fails", "claim {claim}, {request}: {detail}")
_POOLS: Final = Cause("pools", "the resource pools of the node cannot be used for {request}")
_POOLS_OF_CLAIMS: Final = Cause("pools-of-claims", "the resource pools of the node cannot be used for the claims")


class InvalidClaimError(AllocatorError):
    """A claim that no node can serve: a missing class, a feature that is off, too many devices.

    `allocator.search.plan` has the problems.
    """

    def __init__(self, claim: str, request: str, problem: str) -> None:
        self.claim = claim
        self.request = request
        self.problem = problem
        super().__init__(self.told())

    @property
    def reason(self) -> Reason:
        """Why no node can serve the claim."""
        return Reason(_INVALID_REQUEST if self.request else _INVALID_CLAIM, self.request, self.problem, self.claim)

    def told(self, noun: Callable[[str], str] = request_noun) -> str:
        """The whole text; ``noun`` says what to call a request."""
        where = f"claim {self.claim}, {noun(self.request)}" if self.request else f"claim {self.claim}"
        return f"{where}: {self.problem}"


def missing_class(name: str) -> Reason:
    """The reason for a device class that does not exist, also for callers that look at classes before a search."""
    return Reason(MISSING_CLASS, detail=name)


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
        super().__init__(self.told())

    @property
    def reason(self) -> Reason:
        """Names claim, request and selector, but not the device, which another try may meet in another order."""
        first_line = self.message.partition("\n")[0]
        return Reason(_SELECTOR, self.request, f"{self.source}: {first_line}", self.claim)

    def told(self, noun: Callable[[str], str] = request_noun) -> str:
        """The whole text, with the device; ``noun`` says what to call a request."""
        on = f" on device {self.device}" if self.device else ""
        return f"claim {self.claim}, {noun(self.request)}: {self.source}{on}: {self.message}"


class NodeUnsuitableError(AllocatorError):
    """A contradiction between claim and node that must not pass as a "no"; other nodes may serve the claim.

    Examples: all devices of a pool that is being updated; a constraint that two of all devices violate.
    """

    def __init__(self, claim: str, request: str, problem: str, device: DeviceId | None = None) -> None:
        self.claim = claim
        self.request = request
        self.problem = problem
        self.device = device
        on = f" on device {device}" if device else ""
        super().__init__(f"claim {claim}, request {request}: {problem}{on}")

    @property
    def reason(self) -> Reason:
        """Names no pool and no device, so that it is equal for many nodes."""
        return Reason(_POOLS, self.request) if self.request else Reason(_POOLS_OF_CLAIMS)


class CapacityError(NodeUnsuitableError):
    """A request for capacity that the device's range can't express: too large, too fine, or negative."""


class SearchLimitError(AllocatorError):
    """The search reached a limit: the answer is neither yes nor no."""

    def __init__(self, steps: int, limit: str) -> None:
        self.steps = steps
        self.limit = limit
        super().__init__(f"{self.reason.in_words()} after {steps} steps")

    @property
    def reason(self) -> Reason:
        """Names the limit."""
        return Reason(STOPPED, detail=self.limit)
