"""What pods may take from each other: whoever has nothing of it in common takes nothing from the other one."""

from dataclasses import dataclass, field
from typing import Final

from allocator import ClassMembers, Limits, SearchLimitError
from allocator.search import SearchBudget, TimedSelectors
from extender.cluster.objects.extended_resources import MARKER
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Solver
from extender.framework.pods.claims import Blocked, claims_of
from extender.planning.planner import as_planned

_SECONDS: Final = 1.0
"""For the selectors of one class. If the time is up, any driver may have devices of it."""


@dataclass(frozen=True, slots=True)
class Stakes:
    """Tells what pods may take: devices of drivers, resources of device plugins and of nodes, and quotas.

    Selectors of requests do not count, and neither does what is in use: too much is found rather than too little.
    Partitions of a device have one driver.

    Attributes:
        snapshot: the cluster.
        solver: evaluates the selectors of classes.
    """

    snapshot: Snapshot
    solver: Solver
    _known: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    """The drivers of each class."""

    def of(self, pod: Pod) -> frozenset[tuple[str, str]]:
        """What a pod without devices may take."""
        namespace = pod.namespace
        found = {("namespace", namespace)}  # DeviceQuotas, and claims that several pods name
        quotas = (each for each in self.snapshot.device_quotas.values() if each.namespace == namespace)
        found |= {("cohort", each.cohort) for each in quotas if each.cohort}
        found |= {("resource", own.resource) for each in pod.containers for own in each.requests}
        if self.snapshot.inventory.taking:
            found.add(("resource", "of nodes"))
        drivers = {driver for name in self._classes(pod) for driver in self._drivers(name)}
        return frozenset(found | {("driver", each) for each in drivers}) - {("resource", MARKER)}

    def _classes(self, pod: Pod) -> set[str]:
        planned, fork = as_planned(pod, self.snapshot)
        claims = claims_of(planned, fork)
        if isinstance(claims, Blocked):
            return set()
        requests = [request for spec in claims.open_specs for request in spec.requests]
        found = {way.device_class for request in requests for way in request.alternatives}
        members = {name for group in claims.special.groups.values() for name, _ in group.members}
        return {*found, *claims.special.classes.values(), *members}

    def _drivers(self, name: str) -> frozenset[str]:
        if name not in self._known:
            self._known[name] = self._searched(name)
        return self._known[name]

    def _searched(self, name: str) -> frozenset[str]:
        device_class, pools = self.snapshot.classes.get(name), self.snapshot.inventory.pools
        if device_class is None:
            return frozenset()
        budget = SearchBudget(Limits(seconds=_SECONDS), self.solver.clock)
        members = ClassMembers(device_class, TimedSelectors(self.solver.selectors, budget))
        found: set[str] = set()
        try:
            for identity, pool in pools.items():
                devices = (device for each in pool.newest for device in each.devices)
                if identity.driver not in found and any(map(members.has, devices)):
                    found.add(identity.driver)
        except SearchLimitError:
            return frozenset(each.driver for each in pools)
        return frozenset(found)
