"""Errors that carry data: who is at fault, where, and with which value. The text is made from the data."""

from dataclasses import dataclass
from typing import Final

from allocator.model import DeviceId

_MOST_PROBLEMS: Final = 10
_LONGEST_PROBLEM: Final = 300
"""Characters. Of objects that can't be read, these stay in memory and go into answers."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an object, e.g. ``spec.devices[3].capacity[memory].value``."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_PROBLEM else f"{text[:_LONGEST_PROBLEM]}..."


class AllocatorError(Exception):
    """Base of all errors of this package. Not the answer "no": that is a value, `Unsatisfiable`."""


class InvalidObjectError(AllocatorError):
    """An API object that cannot be used; all of its problems, not only the first."""

    def __init__(self, kind: str, name: str, problems: tuple[Problem, ...]) -> None:
        self.kind = kind
        self.name = name
        self.problems = problems
        super().__init__("; ".join(f"{kind} {name}: {problem}" for problem in problems))

    @property
    def summary(self) -> str:
        """The first problems, without the object: short, however many there are and however long their paths are."""
        texts = [_cut(str(problem)) for problem in self.problems[:_MOST_PROBLEMS]]
        more = len(self.problems) - len(texts)
        return "; ".join([*texts, *([f"and {more} more"] if more else [])])


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
        source: ``class NAME selector 0``, ``selector 1`` or ``derived attribute NAME``.
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
