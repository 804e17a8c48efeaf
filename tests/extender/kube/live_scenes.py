"""A fake API server with a client, a cache and followers in virtual time: what the tests of the live cluster share."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from extender.cluster.cluster_state import ClusterState
from extender.cluster.live import LiveCluster, Timing
from extender.cluster.snapshot_edit import Relist
from extender.kube.api import Event, ObjectKey, RawObject, key_of, revision_of
from extender.kube.connection.transport import HttpRequest
from extender.kube.discovery import Served
from extender.kube.remote import RemoteApi, RequestTiming
from extender.kube.resources import CLAIMS, OF_KUEUE, RESOURCES, Resource
from extender.kube.watch import WatchSource, WatchTiming
from extender.tools.intake import Budget
from extender.tools.offload import at_once
from tests.kit.servers.transport import FakeApi, Fault

LACKING = {
    *("DeviceTaintRule", "DeviceQuota", "ResourceClass", "PodSchedulingContext", "PodGroup"),
    *(each.kind for each in OF_KUEUE),
}
"""Optional kinds that the server lacks."""

SERVED = Served({kind: resource.versions[0] for kind, resource in RESOURCES.items() if kind not in LACKING})


def now() -> float:
    """The virtual time."""
    return asyncio.get_running_loop().time()


def half() -> float:
    """Jitter that is the same always."""
    return 0.5


def api_over(fake: FakeApi, *, page_size: int = 500) -> RemoteApi:
    return RemoteApi(fake, SERVED, random=half, timing=RequestTiming(page_size=page_size))


def source_over(fake: FakeApi, *, page_size: int = 2) -> WatchSource:
    api, budget = api_over(fake, page_size=page_size), Budget(clock=now)
    return WatchSource(api, random=half, timing=WatchTiming(), off_loop=at_once, budget=budget)


def make_claim(name: str, **labels: str) -> RawObject:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}", "labels": labels},
        "spec": {"devices": {"requests": [request]}},
    }


def make_pod(name: str, *, claims: bool) -> RawObject:
    spec: RawObject = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    if claims:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"},
        "spec": spec,
    }


def make_node(name: str) -> RawObject:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": f"uid-{name}"}}


def default(name: str) -> ObjectKey:
    return ObjectKey("default", name)


class RecordingState(ClusterState):
    """A real cache, which notes what it is told.

    Attributes:
        told: type, name and revision of events.
        doubts: kind and reason.
        lists: revisions of the lists that were taken.
    """

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, str, int]] = []
        self.doubts: list[tuple[str, str]] = []
        self.lists: list[tuple[str, int]] = []

    def apply(self, event: Event) -> None:
        self.told.append((event.type.value, key_of(event.object).name, revision_of(event.object)))
        super().apply(event)

    def take(self, relist: Relist, at: int) -> bool:
        taken = super().take(relist, at)
        if taken:
            self.lists.append((relist.kind.resource.kind, at))
        return taken

    def doubt(self, resource: Resource, reason: str) -> None:
        self.doubts.append((resource.kind, reason))
        super().doubt(resource, reason)


@asynccontextmanager
async def following(
    fake: FakeApi, state: ClusterState, random: Callable[[], float] = half, timing: Timing | None = None
) -> AsyncIterator[LiveCluster]:
    """A live cluster that follows a fake server while the context lasts."""
    cluster = LiveCluster(api_over(fake, page_size=2), random=random, timing=timing or Timing(), off_loop=at_once)
    running = asyncio.create_task(cluster.run(state))
    try:
        yield cluster
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def for_kind(resource: Resource, *faults: Fault) -> "FaultsOfKind":
    """These faults for requests about one kind, in their order."""
    return FaultsOfKind(resource, deque(faults))


class FaultsOfKind:
    def __init__(self, resource: Resource, faults: deque[Fault]) -> None:
        self._resource = resource
        self._faults = faults

    def __call__(self, request: HttpRequest) -> Fault:
        ours = request.path.endswith(f"/{self._resource.plural}")
        return self._faults.popleft() if ours and self._faults else Fault()


def names(state: ClusterState) -> set[str]:
    return {key.name for key in state.snapshot.claims}


def claim_lists(state: RecordingState) -> list[int]:
    return [at for kind, at in state.lists if kind == CLAIMS.kind]
