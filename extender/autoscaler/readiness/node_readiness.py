"""Is a new node complete: has every driver published what it is expected to publish there?

The first source that knows something of expected drivers counts: node templates, then the other nodes of the node's
group, then DaemonSets that are known to run drivers. A source may also know that nothing is expected.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from extender.autoscaler.readiness.daemon_sets import DriverDaemonSets
from extender.autoscaler.simulated_cluster import World
from extender.cluster.objects.nodes import NodeObject
from extender.decisions.verdict import UNKNOWN_NODE
from extender.planning.templates.blueprints import local_pools
from extender.planning.templates.catalog import Supply


@dataclass(frozen=True, slots=True)
class Expectations:
    """What tells of drivers.

    Attributes:
        patience: after this time, a node without slices is taken to be a node without drivers.
    """

    daemon_sets: DriverDaemonSets
    now: datetime
    patience: timedelta

    def of(self, node: NodeObject, supply: Supply) -> Mapping[str, str] | None:
        """Each driver that is expected, with where that is known from; None: nothing is known."""
        blueprints = supply.blueprints(node.node)
        if blueprints:
            return {driver: each.origin for each in blueprints for driver in each.drivers}
        if any(self._is_without_drivers(each, supply) for each in supply.group_of(node.node)):
            return {}
        return self.daemon_sets.on(node) if self.daemon_sets.known else None

    def ends(self, node: NodeObject) -> datetime | None:
        """When the time of a new node's drivers is over; None: it is over."""
        if not node.created:
            return None
        end = datetime.fromisoformat(node.created) + self.patience
        return end if self.now < end else None

    def _is_without_drivers(self, node: NodeObject, supply: Supply) -> bool:
        return self.ends(node) is None and not local_pools(node.node, supply.snapshot, supply.catalog.features)


NOTHING_KNOWN: Final = "nothing is known of what it should have"


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a node is complete; while it is not, why."""

    reason: str = ""

    @property
    def ready(self) -> bool:
        """There is no reason why not."""
        return not self.reason


def node_readiness(name: str, world: World, expectations: Expectations) -> Readiness:
    """Whether the slices of a node are all there: of every driver that is expected, all of the newest generation.

    Only the drivers that the world judges count. If nothing is known of the drivers, they have some time from the
    creation of the node. A node that has slices then is ready, and a node without slices never is.
    """
    if name in world.fictional:
        return Readiness("the node does not exist: it was made up in this session")
    found = world.snapshot.nodes.get(name)
    if found is None:
        return Readiness(UNKNOWN_NODE.in_words())
    judged = None if world.scope is None else world.scope.drivers
    published = local_pools(found.node, world.snapshot, world.supply.catalog.features)
    pools = {pool: view for pool, view in published.items() if judged is None or pool.driver in judged}
    for pool, view in pools.items():
        if view is None:
            return Readiness(f"pool {pool}: slices of the newest generation are missing")
        if view.problem:
            return Readiness(f"pool {pool}: {view.problem}")
    expected = expectations.of(found, world.supply)
    if expected is not None:
        ours = expected.keys() if judged is None else expected.keys() & judged
        missing = sorted(ours - {pool.driver for pool in pools})
        return Readiness(_unpublished(missing[0], expected[missing[0]])) if missing else Readiness()
    unread = expectations.daemon_sets.unread
    reason = f"{NOTHING_KNOWN} ({unread})" if unread else NOTHING_KNOWN
    end = expectations.ends(found)
    if end is not None:
        return Readiness(f"{reason}: its drivers have time until {end:%Y-%m-%dT%H:%M:%SZ}")
    return Readiness() if pools else Readiness(reason)


def _unpublished(driver: str, source: str) -> str:
    return f"driver {driver} has published nothing for the node yet ({source})"
