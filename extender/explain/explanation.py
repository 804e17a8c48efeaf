"""What an explanation says: values, made by the other modules and written out by `extender.explain.text`."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from allocator import DeviceId, Obstacle, ReadValues
from extender.explain.changes import Change
from extender.explain.holders import Holder


class Verdict(Enum):
    """What becomes of the pod; the value is the word in JSON."""

    FITS = "fits"
    FITS_NOWHERE = "fits nowhere"
    BLOCKED = "blocked"
    BOUND = "bound"
    NEEDS_NOTHING = "needs no devices"


@dataclass(frozen=True, slots=True)
class Fallout:
    """Devices that fell out for one cause.

    Attributes:
        values: what was seen on them, and on how many, most frequent first.
        devices: the first few.
        holders: of those few, where they are in use or shares of them are; those first that have most.
        exists: some device has the value that the obstacle's condition wants, where it wants just one.
    """

    obstacle: Obstacle
    count: int
    values: tuple[tuple[ReadValues, int], ...] = ()
    devices: tuple[DeviceId, ...] = ()
    holders: tuple[tuple[DeviceId, Holder], ...] = ()
    exists: bool = True


@dataclass(frozen=True, slots=True)
class UnusablePool:
    """A pool of which no device can be had, with the number of devices that it publishes."""

    pool: str
    problem: str
    incomplete: bool
    devices: int


@dataclass(frozen=True, slots=True)
class Clash:
    """A constraint that holds for no choice of devices: what there is to choose from on one node.

    Attributes:
        values: request to the values of its free devices there, each with its number of devices.
    """

    constraint: str
    node: str
    values: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class RequestReport:
    """What became of all devices for one request (or one alternative of it).

    Attributes:
        source: kind and name of the object where the request stands.
        asks: how many devices, of which class.
        considered: devices that the nodes reach, in pools that can be used.
        free: those that would do, and the first few of them.
        most: the node with the most of them, and how many.
    """

    claim: str
    source: str
    request: str
    asks: str
    need: int
    considered: int
    free: int
    examples: tuple[DeviceId, ...]
    most: tuple[str, int]
    fallouts: tuple[Fallout, ...]
    pools: tuple[UnusablePool, ...]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes with the same answer: the reason that filter gives."""

    reason: str
    nodes: tuple[str, ...]


class PlacedDevice(NamedTuple):
    """A device that the pod would get, for which request of which claim."""

    claim: str
    request: str
    device: DeviceId


@dataclass(frozen=True, slots=True)
class Place:
    """A node that will do, with what the pod would get there; without a score: where it is."""

    node: str
    score: int | None
    devices: tuple[PlacedDevice, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """Changes that together make the pod fit: tried out, on this node.

    Attributes:
        devices: what the pod would get, as far as it is there already.
    """

    changes: tuple[Change, ...]
    node: str
    devices: tuple[DeviceId, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything about one pod.

    Attributes:
        summary: one line.
        cause: of a pod that can go nowhere, why; may be more than one line.
        advice: what to do about that, in general.
        notes: what else is to be known.
    """

    pod: str
    verdict: Verdict
    summary: str
    cause: str = ""
    advice: str = ""
    notes: tuple[str, ...] = ()
    nodes: tuple[NodeGroup, ...] = ()
    requests: tuple[RequestReport, ...] = ()
    clashes: tuple[Clash, ...] = ()
    places: tuple[Place, ...] = ()
    proposals: tuple[Proposal, ...] = ()

    @property
    def is_of_one_node(self) -> bool:
        """Only one node was looked at."""
        return sum(len(group.nodes) for group in self.nodes) + len(self.places) == 1
