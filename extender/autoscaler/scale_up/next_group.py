"""Which node group a Cluster Autoscaler had best expand next: the answer of its gRPC expander.

An autoscaler adds nodes of one group, and then looks again. Two rules propose a group: `most_pods` helps the most pods
now, and `least_waste` is the default of `estimate`. If they disagree, each rule's plan is made, and the first group of
the better plan is the answer. So a chain of answers needs no more nodes than `estimate`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from extender.autoscaler.scale_up.estimate import Estimate
from extender.autoscaler.scale_up.expanders import Expander, Offer, least_waste, most_pods
from extender.autoscaler.scale_up.plan import NodeGroup, PendingPod
from extender.autoscaler.simulated_cluster import World
from extender.decisions.solver import Solver

_NAMED_PODS: Final = 3


@dataclass(frozen=True, slots=True)
class Expansion:
    """The groups that are left of those asked about.

    Attributes:
        groups: the best group. Several: no group helps that we know, and these groups are not known. None: none helps.
        reason: for people.
    """

    groups: tuple[str, ...]
    reason: str


def expand(world: World, pods: Sequence[PendingPod], groups: Sequence[NodeGroup], solver: Solver) -> Expansion:
    """The group to add nodes of; the world is not changed.

    Args:
        world: the cluster.
        pods: each once, with the groups that may take it.
        groups: with different names. The limit of each is the number of nodes that would be added.
        solver: the allocator, for as long as the call has time.

    Raises:
        TimeoutError: time was up.
    """
    if not pods or not groups:
        return Expansion((), "there are no pods" if groups else "there are no groups")
    estimate = Estimate(world, pods, groups, solver)
    offered = estimate.offers()
    if not offered:
        return _without_offers(world, groups, estimate)
    best = most_pods(offered)
    if least_waste(offered).group != best.group:
        # Without time for plans, the rule's own answer is good, too.
        with suppress(TimeoutError):
            best = min((_plan(rule, estimate) for rule in (most_pods, least_waste)), key=lambda plan: plan[0])[1]
    group = groups[best.group]
    source = ", ".join(each.origin for each in world.supply.blueprints(group.room.node.node)) or "nothing is known"
    reason = (
        f"pods that get a place: {best.pods} of {len(pods)}; new nodes: {best.nodes}; "
        f"stranded devices: {best.stranded}; devices of a new node: {source}"
    )
    return Expansion((group.name,), reason)


def _plan(rule: Expander, estimate: Estimate) -> tuple[tuple[int, int, int], Offer]:
    """How a rule's plan ranks (pods without a place, nodes, stranded devices), and its first choice."""
    chosen: list[Offer] = []

    def choose(offered: Sequence[Offer]) -> Offer:
        chosen.append(rule(offered))
        return chosen[-1]

    plan = estimate.again().plan(choose)
    rank = (len(plan.failed), sum(each.nodes for each in chosen), sum(each.stranded for each in chosen))
    return rank, chosen[0]


def _without_offers(world: World, groups: Sequence[NodeGroup], estimate: Estimate) -> Expansion:
    """The groups whose devices are not known: the autoscaler may know more of them. The other groups do not help."""
    unknown = tuple(each.name for each in groups if not world.supply.blueprints(each.room.node.node))
    failed = estimate.plan(least_waste).failed
    more = f"; and {len(failed) - _NAMED_PODS} more pods" if len(failed) > _NAMED_PODS else ""
    why = "; ".join(f"{pod}: {reason}" for pod, reason in failed[:_NAMED_PODS]) + more
    if unknown:
        return Expansion(unknown, f"nothing is known of the devices of these groups, and no other group helps: {why}")
    return Expansion((), f"no group helps: {why}")
