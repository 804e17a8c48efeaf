"""What is asked and answered. Pods and Nodes are raw API objects: JSON as kubectl has it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

RawObject: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Filtered:
    """Names of the nodes that will do, in the order asked, and of the others with the reason."""

    passed: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a node's slices are all there, and why not."""

    ready: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that can be added.

    Attributes:
        template: a Node as the group's next one will be; its allocatable is what is left for pods.
        limit: how many can be added.
        priority: for the expander "priority"; the highest goes first.
    """

    name: str
    template: RawObject
    limit: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class AddedNodes:
    """Nodes to add of one group.

    Attributes:
        nodes: for each of them the pods that it is for, as namespace/name.
        devices: where it is known from what such a node brings; empty: nowhere.
    """

    group: str
    nodes: tuple[tuple[str, ...], ...] = ()
    devices: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to add, for all groups that were asked about, and the pods that none of them helps, with the reason."""

    groups: tuple[AddedNodes, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
