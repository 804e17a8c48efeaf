"""Which drivers are expected to publish slices on a node, and where that is known from.

The first source that knows something counts: node templates, then the other nodes of the node's group, then DaemonSets
that are known to run drivers. A source may also know that nothing is expected.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from extender.autoscaler.readiness.daemon_sets import DriverDaemonSets
from extender.autoscaler.templates.blueprints import local_pools
from extender.autoscaler.templates.catalog import Supply
from extender.cluster.objects.nodes import NodeObject


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
