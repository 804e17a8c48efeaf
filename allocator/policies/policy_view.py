"""The view of a policy: the facts that it may read of a node and of what a search has taken."""

from collections.abc import Mapping
from dataclasses import dataclass

from allocator.checks.counters import Counters, counter_demand
from allocator.class_members import ClassMembers
from allocator.model.device_classes import DeviceClass
from allocator.search.candidates import Candidates
from allocator.search.limits import TimedSelectors
from allocator.search.plan import Plan


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The facts that a policy may read.

    Attributes:
        classes: all device classes of the cluster, by name. Only a policy that `weighs_classes` may read them.
        selectors: evaluates selectors, within the time that the whole decision may take.
    """

    plan: Plan
    candidates: Candidates
    counters: Counters
    classes: Mapping[str, DeviceClass]
    selectors: TimedSelectors

    def breakage(self, index: int) -> int:
        """1 for a device whose counter sets have nothing taken yet, else 0."""
        device = self.candidates.all[index].device
        if not device.consumes_counters:
            return 0
        left = self.counters.left(device.id.pool_id)
        full = self.counters.full(device.id.pool_id)
        return int(all(left[key] == full[key] for key, _ in counter_demand(device)))

    def demand(self, index: int) -> int:
        """The number of device classes that a device belongs to."""
        device = self.candidates.all[index].device
        return sum(ClassMembers(each, self.selectors).has(device) for each in self.classes.values())
