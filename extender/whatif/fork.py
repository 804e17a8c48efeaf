"""The fork of a snapshot in which things become as a question says, edit by edit."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from allocator import Features, Problem
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ObjectKey
from extender.planning.templates.catalog import Supply


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node that does not exist, and where it is known from what it brings."""

    name: str
    origin: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """A pod that leaves a drained node.

    Attributes:
        caution: why that is not as simple as it looks; empty if it is.
    """

    pod: Pod
    caution: str


@dataclass(slots=True)
class Fork:
    """A cluster while edits change it.

    Attributes:
        supply: what new nodes bring.
        now: the time at which pods are made, as the API writes it.
        schedulers: names of the schedulers that call the extender; empty: not known.
        snapshot: the cluster as it is after the edits so far.
        nodes: those that do not exist.
        new: pods that do not exist.
        edited: pods with edited requests.
        drained: nodes.
        leaving: pods that leave drained nodes, and are pending in the snapshot.
        staying: pods that stay on drained nodes, each with the reason.
        problems: what is wrong with edits.
    """

    supply: Supply
    features: Features
    now: str
    schedulers: Sequence[str]
    snapshot: Snapshot = field(init=False)
    nodes: list[NewNode] = field(default_factory=list)
    new: list[ObjectKey] = field(default_factory=list)
    edited: list[ObjectKey] = field(default_factory=list)
    drained: list[str] = field(default_factory=list)
    leaving: list[Leaving] = field(default_factory=list)
    staying: list[tuple[str, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.snapshot = self.before

    @property
    def before(self) -> Snapshot:
        """The cluster as it is."""
        return self.supply.snapshot
