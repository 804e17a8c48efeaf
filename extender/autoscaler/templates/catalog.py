"""What nodes of some labels bring: by a template, or learned from a real node of the same group."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from allocator import Features, Node
from extender.autoscaler.templates.blueprints import Blueprint, learned
from extender.autoscaler.templates.node_templates import NodeTemplate
from extender.state.objects.nodes import NodeObject
from extender.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Catalog:
    """All that is known of nodes to come.

    Attributes:
        group_label: the label whose value tells which group a node is of; empty: nothing is learned from real nodes.
    """

    templates: tuple[NodeTemplate, ...] = ()
    group_label: str = ""
    features: Features = field(default_factory=Features)


@dataclass(frozen=True, slots=True, eq=False)
class Supply:
    """A catalog, and the real nodes that it can learn from.

    Attributes:
        snapshot: the cluster without any node that does not exist.
    """

    catalog: Catalog
    snapshot: Snapshot
    _models: dict[tuple[str, str], Blueprint | None] = field(default_factory=dict)

    def blueprints(self, node: Node) -> Sequence[Blueprint]:
        """What such a node brings. Templates go before what other nodes of its group publish."""
        found = [template.blueprint for template in self.catalog.templates if template.matches(node)]
        if found:
            return found
        group = self._group(node)
        if group is None:
            return []
        apart = node.name if node.name in self.snapshot.nodes else ""
        if (group, apart) not in self._models:
            alike = (each.node for each in self.group_of(node))
            self._models[group, apart] = learned(alike, self.snapshot, self.catalog.features)
        model = self._models[group, apart]
        return [] if model is None else [model]

    def group_of(self, node: Node) -> Iterator[NodeObject]:
        """The other real nodes of a node's group; none if the catalog has no label for groups."""
        group, label = self._group(node), self.catalog.group_label
        if group is not None:
            for each in self.snapshot.nodes.values():
                if each.node.labels.get(label) == group and each.name != node.name:
                    yield each

    def _group(self, node: Node) -> str | None:
        return node.labels.get(self.catalog.group_label) if self.catalog.group_label else None
