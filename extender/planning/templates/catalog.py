"""The catalog of what nodes of some labels bring: by a template, or learned from a real node of the same group."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from allocator import Features, Node
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.config.settings import Settings
from extender.planning.templates.blueprints import Blueprint, learned
from extender.planning.templates.node_templates import NodeTemplate, TemplateError, load_templates
from extender.tools.files import UnreadableError, read_text

OF_KUBERNETES: Final = "node.kubernetes.io/"
"""Prefix of the taints by which Kubernetes tells the condition of a node. They say nothing of a group."""

HOSTNAME: Final = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Group:
    """A group of nodes to which an autoscaler may add one.

    Attributes:
        name: of the template, or the value of the label for groups.
        labels: tell nodes of the group.
        node: as a new node is, but for its name.
    """

    name: str
    labels: Mapping[str, str]
    node: NodeObject

    def node_called(self, name: str) -> NodeObject:
        """A new node of the group."""
        labels = {**self.node.node.labels, HOSTNAME: name}
        return replace(self.node, node=replace(self.node.node, name=name, labels=labels))


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

    def groups(self) -> Iterator[Group]:
        """All groups of which something is known: those of templates, and those of real nodes without a template."""
        for each in self.catalog.templates:
            yield Group(each.name, each.labels, NodeObject(Node(each.name, each.labels)))
        own: dict[str, list[NodeObject]] = {}
        for node in self.snapshot.nodes.values():
            name = self._group(node.node)
            if name is not None and not any(each.matches(node.node) for each in self.catalog.templates):
                own.setdefault(name, []).append(node)
        for name, nodes in sorted(own.items()):
            yield Group(name, {self.catalog.group_label: name}, _alike(nodes))

    def group_of(self, node: Node) -> Iterator[NodeObject]:
        """The other real nodes of a node's group; none if the catalog has no label for groups."""
        group, label = self._group(node), self.catalog.group_label
        if group is not None:
            for each in self.snapshot.nodes.values():
                if each.node.labels.get(label) == group and each.name != node.name:
                    yield each

    def _group(self, node: Node) -> str | None:
        return node.labels.get(self.catalog.group_label) if self.catalog.group_label else None


def _alike(nodes: Sequence[NodeObject]) -> NodeObject:
    """The smallest of some nodes, with the labels and taints that all of them have."""
    first, *others = nodes
    labels = {
        name: value
        for name, value in first.node.labels.items()
        if all(each.node.labels.get(name) == value for each in others)
    }
    taints = tuple(
        taint
        for taint in first.taints
        if not taint.key.startswith(OF_KUBERNETES) and all(taint in each.taints for each in others)
    )
    least = min(nodes, key=lambda node: (node.cpu is None, node.cpu))
    return replace(least, node=replace(first.node, labels=labels), taints=taints)


def read_catalog(settings: Settings) -> Catalog:
    """The catalog of nodes to come; reads the file with their templates.

    Raises:
        TemplateError: the file can't be read, or is invalid.
    """
    wanted = settings.autoscaler
    path = wanted.node_templates
    try:
        text = read_text(Path(path)) if path else ""
    except UnreadableError as error:
        raise TemplateError(f"autoscaler.nodeTemplates: {path}: {error}") from error
    return Catalog(load_templates(text, file=path), wanted.learn_from_label)
