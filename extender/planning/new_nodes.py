"""Nodes that do not exist, on forks."""

from collections.abc import Iterable

from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.planning.templates.blueprints import Blueprint


def with_new_node(node: NodeObject, blueprints: Iterable[Blueprint], fork: Snapshot) -> Snapshot:
    """The cluster with one more node, which brings the devices of some blueprints."""
    fork = fork.with_node(node)
    for blueprint in blueprints:
        for each in blueprint.build(node.name):
            fork = fork.with_slice(each)
    return fork


def without_devices(node_name: str, blueprints: Iterable[Blueprint], fork: Snapshot) -> Snapshot:
    """The cluster in which such a node brings the devices of these blueprints no more."""
    for blueprint in blueprints:
        for each in blueprint.build(node_name):
            fork = fork.without_slice(each.name)
    return fork
