"""What nodes of some labels bring: by a template, or learned from a real node of the same group."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from allocator import Features, Node
from extender.autoscaler.blueprints import Blueprint, learned
from extender.autoscaler.templates import NodeTemplate
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
        group = node.labels.get(self.catalog.group_label) if self.catalog.group_label else None
        if group is None:
            return []
        apart = node.name if node.name in self.snapshot.nodes else ""
        if (group, apart) not in self._models:
            self._models[group, apart] = self._model(group, apart)
        model = self._models[group, apart]
        return [] if model is None else [model]

    def _model(self, group: str, apart: str) -> Blueprint | None:
        """What the best node of a group publishes, one node left out."""
        label = self.catalog.group_label
        nodes = (each.node for each in self.snapshot.nodes.values())
        alike = (node for node in nodes if node.labels.get(label) == group and node.name != apart)
        return learned(alike, self.snapshot, self.catalog.features)
