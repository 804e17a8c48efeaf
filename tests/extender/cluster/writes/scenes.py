"""A claim, a pod, and a writer behind a transport that can fail."""

from typing import Any

from allocator import AllocationResult, DeviceId, DeviceResult
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.reservations import Reservation
from extender.cluster.writes.writer import ReleaseOutcome, Writer
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS
from tests.kit import virtualtime
from tests.kit.clusters import DRIVER, claim, node, pod
from tests.kit.servers.memory import NOW, Fault, Transport, memory_api

KEY = ObjectKey("ns", "gpu")
POD = ObjectKey("ns", "p")
PROTECT, ALLOCATE, READ = "update resourceclaims", "update_status resourceclaims", "get resourceclaims"
BIND, FENCE = "bind pods", "patch_status pods"
CONFLICT = ApiError(409, "Conflict", "the object has been modified")
FORBIDDEN = ApiError(403, "Forbidden", "not allowed")


def allocation(device: str = "gpu-0", **more: Any) -> AllocationResult:
    return AllocationResult((DeviceResult("gpu", DeviceId(DRIVER, "n", device), **more),))


class Scene:
    """A claim, the pod "p", and a writer behind a transport that can fail."""

    def __init__(self, there: RawObject | None = None, *others: RawObject) -> None:
        self.api = memory_api(node("n"), there or claim("gpu"), pod("p", "gpu"), *others)
        self.state = ClusterState()
        self.api.follow(self.state)
        self.transport = Transport(self.api)
        self.writer = Writer(self.transport, self.state, lambda: NOW)
        self.pod: Pod = self.state.snapshot.pods[POD]

    def reservation(self, wanted: AllocationResult | None = None) -> Reservation:
        known = self.state.snapshot.claims[KEY]
        has = known.claim.allocation
        return Reservation(known, self.pod, has or wanted or allocation(), allocates=has is None, frees=has is None)

    def reserve(self, wanted: AllocationResult | None = None) -> None:
        """Assume and write, as bind does."""
        reservation = self.reservation(wanted)
        if reservation.allocates:
            self.state.assume(reservation.uid, reservation.allocation, self.pod.uid)
        virtualtime.run(self.writer.reserve(reservation))

    def release(self) -> None:
        known = self.state.snapshot.claims[KEY]
        assert known.claim.allocation is not None
        reservation = Reservation(known, self.pod, known.claim.allocation, allocates=True, frees=True)
        assert virtualtime.run(self.writer.release(self.pod, [reservation])) == ReleaseOutcome("")

    def bind(self) -> None:
        virtualtime.run(self.writer.bind(self.pod, "n"))

    @property
    def claim(self) -> RawObject:
        return virtualtime.run(self.api.get(CLAIMS, KEY))

    @property
    def users(self) -> list[str]:
        return [consumer["name"] for consumer in self.claim.get("status", {}).get("reservedFor", [])]

    @property
    def device(self) -> str | None:
        found = self.claim.get("status", {}).get("allocation")
        return None if found is None else str(found["devices"]["results"][0]["device"])

    @property
    def held(self) -> set[str]:
        return {device for pool in self.state.snapshot.usage.pools.values() for device in pool}

    def by_others(self, patch: RawObject, *, status: bool = False) -> Fault:
        """Somebody else changes the claim just before our call arrives."""

        async def change() -> None:
            await (self.api.patch_status if status else self.api.patch)(CLAIMS, KEY, patch)

        return Fault(before=change)


LABEL: RawObject = {"metadata": {"labels": {"a": "b"}}}
