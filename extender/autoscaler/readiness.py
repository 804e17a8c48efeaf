"""Is a new node complete: has every driver published what it is expected to publish there?"""

from dataclasses import dataclass

from extender.autoscaler.blueprints import local_pools
from extender.autoscaler.simulated_cluster import World
from extender.decisions.verdict import UNKNOWN_NODE


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a node is complete; while it is not, why."""

    reason: str = ""

    @property
    def ready(self) -> bool:
        """There is no reason why not."""
        return not self.reason


def node_readiness(name: str, world: World) -> Readiness:
    """Whether the slices of a node are all there: of every driver that its blueprint has, all of the newest generation.

    If nothing is expected, a node is ready as soon as it is known and no pool of it is being published.
    """
    if name in world.fictional:
        return Readiness("the node does not exist: it was made up in this session")
    found = world.snapshot.nodes.get(name)
    if found is None:
        return Readiness(UNKNOWN_NODE)
    pools = local_pools(found.node, world.snapshot, world.supply.catalog.features)
    for pool, view in pools.items():
        if view is None:
            return Readiness(f"pool {pool}: slices of the newest generation are missing")
        if view.problem:
            return Readiness(f"pool {pool}: {view.problem}")
    for blueprint in world.supply.blueprints(found.node):
        for driver in sorted(blueprint.drivers - {pool.driver for pool in pools}):
            return Readiness(f"driver {driver} has published nothing for the node yet ({blueprint.origin})")
    return Readiness()
