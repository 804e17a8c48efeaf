"""Topology domains: nodes that have the same value of a label, or devices that have the same value of an attribute.

A PodGroup names the label or attribute, or the annotations of pods do (`extender.cluster.objects.pods`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from allocator import DeviceId, Features
from extender.cluster.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Domain:
    """A part of the cluster.

    Attributes:
        value: of the label or the attribute; empty for the whole cluster.
        nodes: the names of its nodes; None: all nodes.
        devices: the devices that pods may get there; None: all devices.
    """

    value: str = ""
    nodes: frozenset[str] | None = None
    devices: frozenset[DeviceId] | None = None

    def among(self, names: Sequence[str]) -> Sequence[str]:
        """The nodes among these that are in the domain."""
        nodes = self.nodes
        return names if nodes is None else [name for name in names if name in nodes]


EVERYWHERE: Final = Domain()


def domains_of(key: str, snapshot: Snapshot, features: Features) -> Sequence[Domain]:
    """The domains of a label of nodes, or of an attribute of devices if no node has the label.

    Domains with fewer free devices come first: a gang that fits in a small domain leaves the large ones to others.

    Args:
        key: the label, or ``domain/name`` of an attribute; empty: there are no domains.
        snapshot: the cluster.
        features: which pools nodes see.
    """
    if not key:
        return ()
    found = _of_label(key, snapshot) or _of_attribute(key, snapshot, features)
    return sorted(found, key=lambda domain: (_free(domain, snapshot, features), domain.value))


def _of_label(key: str, snapshot: Snapshot) -> list[Domain]:
    values: dict[str, set[str]] = {}
    for name, node in snapshot.nodes.items():
        value = node.node.labels.get(key)
        if value is not None:
            values.setdefault(value, set()).add(name)
    return [Domain(value, frozenset(names)) for value, names in values.items()]


def _of_attribute(key: str, snapshot: Snapshot, features: Features) -> list[Domain]:
    nodes: dict[str, set[str]] = {}
    devices: dict[str, set[DeviceId]] = {}
    for name in snapshot.nodes:
        for device, value in _values(key, name, snapshot, features):
            nodes.setdefault(value, set()).add(name)
            devices.setdefault(value, set()).add(device)
    return [Domain(value, frozenset(nodes[value]), frozenset(devices[value])) for value in nodes]


def _values(key: str, name: str, snapshot: Snapshot, features: Features) -> Iterator[tuple[DeviceId, str]]:
    """The devices that a node reaches, with their values of an attribute."""
    for view in snapshot.inventory.for_node(snapshot.nodes[name].node, features):
        for candidate in view.candidates:
            value = candidate.device.attributes.get(key)
            if value is not None:
                yield candidate.device.id, str(value)


def _free(domain: Domain, snapshot: Snapshot, features: Features) -> int:
    """The number of devices of a domain that no claim uses, about."""
    total = 0
    for name in domain.nodes or ():
        for view in snapshot.inventory.for_node(snapshot.nodes[name].node, features):
            total += len(view.candidates) - len(snapshot.usage.pools.get(view.id, ()))
    return total
