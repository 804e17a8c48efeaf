"""A claim in a state, changes of it, and what the state then has."""

from allocator import AllocationResult, DeviceId, DeviceResult, PoolId
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import ClaimObject
from extender.kube.api import Event, EventType, ObjectKey, RawObject
from extender.kube.resources import Resource
from tests.kit.clusters import DRIVER

POOL = PoolId(DRIVER, "n")
KEY = ObjectKey("ns", "gpu")


def at(version: int, raw: RawObject) -> RawObject:
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(version)}}


def change(state: ClusterState, resource: Resource, raw: RawObject, *, version: int = 1) -> None:
    state.apply(Event(EventType.MODIFIED, resource, at(version, raw)))


def delete(state: ClusterState, resource: Resource, raw: RawObject, *, version: int = 1) -> None:
    state.apply(Event(EventType.DELETED, resource, at(version, raw)))


def allocation(*devices: str) -> AllocationResult:
    return AllocationResult(tuple(DeviceResult("gpu", DeviceId(DRIVER, "n", device)) for device in devices))


def held(state: ClusterState) -> set[str]:
    return {device for pool in state.snapshot.usage.pools.values() for device in pool}


def found(state: ClusterState) -> ClaimObject:
    return state.snapshot.claims[KEY]
