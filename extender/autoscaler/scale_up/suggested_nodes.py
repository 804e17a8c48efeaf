"""Suggested nodes: for a pod that fits nowhere, a new node of each group that may take it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

from allocator.obstacles import RemedyKind
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Solver
from extender.planning.changes import ProposedChange, Suggestion
from extender.planning.kube_scheduler import rejection
from extender.planning.new_nodes import with_new_node
from extender.planning.templates.catalog import Catalog, Group, Supply

MOST_GROUPS: Final = 64
"""Groups that are suggested, those whose nodes bring the fewest devices."""


@dataclass(frozen=True, slots=True)
class SuggestedNodes:
    """Suggests a new node of a group; implements `extender.planning.changes.Suggest`.

    Attributes:
        catalog: what nodes of a group bring.
    """

    catalog: Catalog

    def __call__(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> Iterator[Suggestion]:
        """A node of each group that kube-scheduler would take; those with the fewest devices come first."""
        supply = Supply(self.catalog, snapshot)
        found = []
        for group in supply.groups():
            solver.look()
            if not rejection(pod.requirements, group.node):
                found.append(_suggestion(group, supply, snapshot))
        found.sort(key=lambda each: each.changes[0].weight)
        yield from found[:MOST_GROUPS]


def _suggestion(group: Group, supply: Supply, snapshot: Snapshot) -> Suggestion:
    name = next(name for number in count(1) if (name := f"new-{group.name}-{number}") not in snapshot.nodes)
    node = group.node_called(name)
    blueprints = supply.blueprints(node.node)

    origin = ", ".join(each.origin for each in blueprints) or "it brings no devices of its own"
    labels = ", ".join(f"{key}: {value}" for key, value in group.labels.items())
    change = ProposedChange(
        RemedyKind.ADD_NODE,
        f"node group {group.name}",
        f"add a node of group {group.name} ({origin})",
        f"to the nodes with the labels {{{labels}}}; dra-extender template {group.name} prints such a node",
        partial(with_new_node, node, blueprints),
        weight=sum(each.device_count for each in blueprints),
    )
    return Suggestion((change,), name)
