"""An explanation as a value; `extender.answers.explain.output` writes it."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from allocator import DeviceId, LeftOut, Quantity
from allocator.obstacles import Obstacle, ReadValues
from allocator.tools import did_you_mean, nearest
from extender.answers.explain.holders import Holder
from extender.answers.explain.patches import ObjectPatch
from extender.kube.api import ObjectKey
from extender.planning.changes import ProposedChange


class Conclusion(Enum):
    """The outcome for the pod or the claim; the value is the word in JSON."""

    FITS = "fits"
    FITS_NOWHERE = "fits nowhere"
    BLOCKED = "blocked"
    BOUND = "bound"
    BOUND_WITHOUT_CLAIMS = "bound without its claims"
    NEEDS_NOTHING = "needs no devices"
    ALLOCATED = "allocated"


@dataclass(frozen=True, slots=True)
class Fallout:
    """Devices that are rejected for one obstacle.

    Attributes:
        values: what the devices have, each with the number of devices, most frequent first.
        devices: the first few.
        holders: who holds those few devices or shares of them, the largest share first.
        exists: some device has the one value that the obstacle's condition wants.
    """

    obstacle: Obstacle
    count: int
    values: tuple[tuple[ReadValues, int], ...] = ()
    devices: tuple[DeviceId, ...] = ()
    holders: tuple[tuple[DeviceId, Holder], ...] = ()
    exists: bool = True


@dataclass(frozen=True, slots=True)
class UnusablePool:
    """A pool whose devices cannot be used, with the number of devices that it publishes."""

    pool: str
    problem: str
    incomplete: bool
    devices: int


@dataclass(frozen=True, slots=True)
class Clash:
    """A constraint that no choice of devices satisfies on one node. Without a constraint, requests compete.

    Attributes:
        values: per request, the values of its free devices, each with the number of devices.
    """

    constraint: str
    node: str
    values: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class RequestReport:
    """All devices, judged for one request or for one alternative of a request.

    Attributes:
        source: kind and name of the object where the request stands.
        asks: the number of devices and their class.
        device_class: the class.
        takes_all: every device of the right kind on a node is asked for.
        considered: the number of devices that the nodes reach, in usable pools.
        free: the number of suitable devices; `examples` are the first few.
        most: the node with the most suitable devices, and their number.
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
    device_class: str = ""
    takes_all: bool = False


@dataclass(frozen=True, slots=True)
class NodesByReason:
    """Nodes with the same answer: the reason that filter gives."""

    reason: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rejections:
    """Nodes that kube-scheduler itself rejects, apart from devices.

    Attributes:
        groups: the nodes by kube-scheduler's reason.
        with_devices: those of the nodes that have the devices that the pod needs.
    """

    groups: tuple[NodesByReason, ...] = ()
    with_devices: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return sum(len(group.nodes) for group in self.groups)


class OfferedDevice(NamedTuple):
    """A device that the pod would get, with its claim, its request, and what the request takes of a shared device."""

    claim: str
    request: str
    device: DeviceId
    consumed: Mapping[str, Quantity] | None = None

    def __str__(self) -> str:
        return f"{self.device}{share_in_words(self.consumed)}"


def share_in_words(consumed: Mapping[str, Quantity] | None) -> str:
    """What a request takes of a shared device, to follow the device: `` (bandwidth: 6G, queues: 2)``."""
    return f" ({', '.join(f'{name}: {amount}' for name, amount in consumed.items())})" if consumed else ""


@dataclass(frozen=True, slots=True)
class FittingNode:
    """A node where the pod fits, with its devices there. Without a score, the pod is bound to the node.

    Attributes:
        left_out: the optional requests that are not served there. Without a reason, the claim is allocated already.
    """

    node: str
    score: int | None
    devices: tuple[OfferedDevice, ...]
    why: str
    left_out: tuple[LeftOut, ...] = ()


class Successor(NamedTuple):
    """The pod that a controller makes in place of a deleted one.

    Attributes:
        pod: the deleted pod.
        controller: makes it again.
        node: where the successor fits then; empty: nowhere.
    """

    pod: str
    controller: str
    node: str

    def __str__(self) -> str:
        then = f"which then fits on node {self.node}" if self.node else "which then waits for devices"
        return f"{self.controller} makes pod {self.pod} again, {then}"


@dataclass(frozen=True, slots=True)
class Proposal:
    """Changes that together make the pod fit on a node; they were tried out.

    Attributes:
        devices: the devices that the pod would get, without those that only the changes bring.
        successors: the pods that are made again; those that go before the pod had their turn first.
        patches: of the objects that are edited.
        gates: the feature gates that are turned on.
        commands: make all changes, by kubectl; empty: kubectl cannot make them all.
    """

    changes: tuple[ProposedChange, ...]
    node: str
    devices: tuple[DeviceId, ...]
    successors: tuple[Successor, ...] = ()
    patches: tuple[ObjectPatch, ...] = ()
    gates: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


class Eviction(NamedTuple):
    """A pod that would be evicted, the node where it runs, and whether its namespace has borrowed its devices."""

    pod: str
    priority: int
    node: str
    borrowed: bool = False


@dataclass(frozen=True, slots=True)
class Spared:
    """Holders of devices that are not evicted, all for the same reason: pods, or claims that no pod uses."""

    reason: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PreemptionReport:
    """What device preemption would do for the pod.

    Attributes:
        node: where the pod would get devices; empty if evictions do not help.
        victims: the pods that would be evicted; empty if the pod only has to wait until terminating pods are gone.
        violations: how many evictions break a PodDisruptionBudget.
        spared: the other pods and claims that hold devices which the nodes reach.
    """

    node: str
    victims: tuple[Eviction, ...]
    violations: int
    spared: tuple[Spared, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything about one pod or claim.

    Attributes:
        pod: namespace/name of the pod, or of the claim.
        summary: one line.
        headline: what is wrong, without the name of the pod; empty if nothing is.
        cause: why the pod cannot be placed on any node; it may have several lines.
        advice: what to do for a pod that cannot be placed.
        nodes: that have not the devices, or cannot be decided; without those that kube-scheduler rejects.
        notes: more facts, each a sentence without a full stop.
        policy: the policy that compares the places; empty without places.
        preemption: None if preemption is off, or if it does not concern the pod.
        words: for each request of a special claim, the words by which people know the request.
        subject: what is explained: ``pod`` or ``claim``.
        all_tried: no limit kept a change from being tried. Each proposal was tried in any case.
    """

    pod: str
    verdict: Conclusion
    summary: str
    cause: str = ""
    headline: str = ""
    advice: str = ""
    notes: tuple[str, ...] = ()
    nodes: tuple[NodesByReason, ...] = ()
    rejections: Rejections = Rejections()
    requests: tuple[RequestReport, ...] = ()
    clashes: tuple[Clash, ...] = ()
    places: tuple[FittingNode, ...] = ()
    policy: str = ""
    preemption: PreemptionReport | None = None
    proposals: tuple[Proposal, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    all_tried: bool = True
    subject: str = "pod"

    @property
    def is_of_one_node(self) -> bool:
        """Whether only one node was examined."""
        return sum(len(group.nodes) for group in self.nodes) + len(self.places) + self.rejections.count == 1


_MOST_COMPARED: Final = 2000
"""Names, those next to the wanted one in the order of the alphabet. To compare more takes too long."""


def unknown_pod(key: ObjectKey, known: Iterable[ObjectKey]) -> str:
    """A pod does not exist; names the pod with devices that was probably meant.

    Args:
        key: of the pod.
        known: the pods with devices.
    """
    others = list(known)
    elsewhere = sorted(other.namespace for other in others if other.name == key.name)
    if elsewhere:
        meant = f"{nearest(key.namespace, elsewhere) or elsewhere[0]}/{key.name}"
    else:
        names = sorted(other.name for other in others if other.namespace == key.namespace)
        place = bisect_left(names, key.name)
        near = nearest(key.name, names[max(0, place - _MOST_COMPARED // 2) : place + _MOST_COMPARED // 2])
        meant = near and f"{key.namespace}/{near}"
    return f"pod {key} does not exist{did_you_mean(meant)}"


def needs_no_devices(key: ObjectKey) -> str:
    """A pod exists and needs no devices."""
    return f"pod {key} needs no devices: its devices do not restrict the choice of a node"
