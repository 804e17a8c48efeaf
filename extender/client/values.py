"""What is sent and answered. Pods and Nodes are raw API objects: JSON as kubectl prints it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

ApiObject: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Filtered:
    """The nodes that fit, by name in the order asked; and the other nodes, each with the reason."""

    passed: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether all slices of a node are published, and if not, why."""

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
    template: ApiObject
    limit: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class AddedNodes:
    """Nodes to add of one group.

    Attributes:
        nodes: for each new node, its pods as namespace/name.
        devices: from where it is known what devices such a node has; empty: it is not known.
    """

    group: str
    nodes: tuple[tuple[str, ...], ...] = ()
    devices: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to add, for each group of the call; and the pods that no group helps, each with the reason."""

    groups: tuple[AddedNodes, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
