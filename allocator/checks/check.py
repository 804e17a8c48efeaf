"""A check: one rule that a device may break, and the state that it means. `allocator.checks.table` lists all checks."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from allocator.checks.taint_rules import TaintRules
from allocator.model.claims import Claim, DeviceRequest
from allocator.model.device_classes import DeviceClass
from allocator.model.features import Features
from allocator.model.nodes import Node
from allocator.model.slices.device import Device
from allocator.obstacles.obstacle import Obstacle, Seen
from allocator.obstacles.unmet_conditions import Expressions, Selector
from allocator.pools import Candidate, NodePool
from allocator.reason import Cause
from allocator.usage import DeviceUsage


class DeviceState(Enum):
    """Whether a claim can have a device now: only if it is free or shared. From the best state to the worst."""

    FREE = "free"
    """Nothing holds it."""
    SHARED = "shared"
    """Claims hold shares of it, and there is room for another."""
    BLOCKED = "blocked"
    """Nothing holds it, but devices in use leave too little of a shared counter, or their groups exclude it."""
    TAINTED = "tainted"
    """A taint keeps off claims that do not tolerate it."""
    ALLOCATED = "allocated"
    """A claim holds all of it, or claims hold all of one of its capacities."""
    CLASH = "clash"
    """Claims hold it that exclude each other: two of them all of it, or together more than there is."""
    UNUSABLE = "unusable"
    """No claim can have it: its pool has a problem, no node reaches it, or a feature gate is off."""


Undo = Callable[[], object]
"""Takes back exactly what one `take` has changed."""


class Refusal(NamedTuple):
    """A reason against a device."""

    cause: Cause
    detail: str = ""


def selectors_of(request: DeviceRequest, device_class: DeviceClass) -> tuple[Selector, ...]:
    """The selectors of a class, then those of a request."""
    return (
        *[
            Selector(f"class {device_class.name}, selector {number}", text, number, of_class=True)
            for number, text in enumerate(device_class.selectors)
        ],
        *[Selector(f"selector {number}", text, number) for number, text in enumerate(request.selectors)],
    )


@dataclass(slots=True, eq=False)
class Asked:
    """One way to serve a request.

    Attributes:
        claim: position of the claim among the claims to allocate.
        owner: the claim.
        label: `Request.label`.
    """

    claim: int
    owner: Claim
    request_name: str
    label: str
    request: DeviceRequest
    selectors: tuple[Selector, ...]


class Situation(NamedTuple):
    """The node and the rules of its cluster; ``matches`` is `allocator.cel.selectors.Selectors.matches`."""

    node: Node
    rules: TaintRules
    features: Features
    matches: Callable[[str, Device], bool]


def nothing(*_: object) -> tuple[()]:
    """Reads nothing: the default of a check."""
    return ()


def _no(_: object) -> bool:
    return False


def _unusable(*_: object) -> DeviceState:
    return DeviceState.UNUSABLE


def gate_off(gate: str) -> str:
    """What keeps claims from a device that needs a feature gate."""
    return f"the feature gate {gate} is off"


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """One thing that can speak against a device.

    The check can't tell devices apart that are equal in `reads` and `circumstances`.

    Attributes:
        cause: the cause of its refusals.
        speaks: what speaks against a device with this usage, whatever the current search has taken; may raise
            SelectorError, CapacityError or SearchLimitError.
        fields: the check speaks only against devices that have, or whose slice has, one of these fields set; empty:
            against any device.
        gate: a field of `Features`, and whether it must be on or off for the check to apply.
        state: the state of a device that the check refuses to a claim without wishes (`allocator.device_states`).
        words: what keeps claims from such a device, for tables and the console; None: the gate that is off.
        passes_free: the check never refuses a free device to a claim without wishes.
        obstacle: the refusal in words for people, if the words are always the same.
        obstacles: otherwise: everything that speaks against a device.
        reads: what the check reads of a published device, without attributes and names.
        circumstances: what the check reads of the devices of a pool that is not published; empty: nothing.
        needs_search: whether a request for one device needs a search if this device is on the node, because more
            counts than which devices are held.
    """

    cause: Cause
    speaks: Callable[[Situation, Asked, Candidate, DeviceUsage], Refusal | None]
    fields: tuple[str, ...] = ()
    gate: tuple[str, bool] = ("", True)
    state: Callable[[Device, DeviceUsage], DeviceState] = _unusable
    words: Callable[[Situation, Candidate, Refusal], str] | None = None
    passes_free: bool = False
    obstacle: Obstacle | None = None
    obstacles: Callable[[Situation, Asked, Candidate, DeviceUsage, Expressions], Iterator[Seen]] | None = None
    reads: Callable[[Candidate], Hashable] = nothing
    circumstances: Callable[[NodePool, Node, TaintRules], Sequence[Hashable]] = nothing
    needs_search: Callable[[Candidate], bool] = _no

    def in_words(self, situation: Situation, candidate: Candidate, refusal: Refusal) -> str:
        """What keeps claims from a device that the check refuses to a claim without wishes."""
        if self.words is not None:
            return self.words(situation, candidate, refusal)
        gate = self.obstacle.gate if self.obstacle is not None else ""
        return gate_off(gate) if gate else f"rejected by the check {self.cause.name}"
