"""Allocations and nominations that are decided, and that the watch has not shown yet."""

from dataclasses import dataclass
from typing import Final

from allocator import AllocationResult, ClaimSpec
from extender.cluster.objects.pods import Pod
from extender.kube.raw import revision

NO_SPEC: Final = ClaimSpec()
"""The spec of a claim that is not known."""


@dataclass(frozen=True, slots=True, eq=False)
class AssumedAllocation:
    """A decided allocation whose write the watch has not shown yet.

    Attributes:
        spec: the spec of the claim. The claim may not exist yet.
        ends_at: revision of the claim from which on the watch shows the outcome of the write; None: not known yet.
    """

    claim_uid: str
    pod_uid: str
    allocation: AllocationResult
    ends_at: int | None = None
    spec: ClaimSpec = NO_SPEC


@dataclass(frozen=True, slots=True, eq=False)
class AssumedNomination:
    """What will be kept for a pod, before the watch shows it.

    It counts in DeviceQuotas. It is not held from other pods, and it makes no gang ready: the write may fail.

    Attributes:
        pod: as it is once the nomination is written.
        ends_after: revision of the pod that the write has replaced: any later revision shows what came of the write.
            None: the write goes on.
    """

    pod: Pod
    ends_after: int | None = None

    def counts(self, shown: Pod | None) -> bool:
        """Whether it counts, if the watch shows this pod."""
        if shown is None or not shown.is_pending or shown.kept.node:
            return False
        return self.ends_after is None or revision(shown.resource_version) <= self.ends_after
