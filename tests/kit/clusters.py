"""Small clusters, in few words: raw API objects, and snapshots, services and applications over them."""

import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient

from allocator import Features, Limits, Selectors
from allocator.policies import FIRST_FIT
from extender.autoscaler.autoscaler import make_autoscaler
from extender.autoscaler.negotiating import Negotiating
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.snapshot import Snapshot
from extender.config.settings import Settings
from extender.faces.assembly import ALONE, Extender, Surroundings, make_extender
from extender.faces.http.app import Listener, create_app
from extender.framework.decisions.solver import Solver
from extender.framework.service import Service
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import PODS, RESOURCES
from extender.lab.api import MemoryApi
from extender.lab.cluster import ClaimController
from extender.planning.templates import read_catalog
from extender.plugins.table import PLUGINS
from extender.tools.offload import Offload, in_thread
from tests.kit.objects import parts
from tests.kit.objects.parts import allocation, api_object, claim_spec, exactly, slice_spec

Object = parts.Object
DRIVER = parts.DRIVER
CREATED = "2026-01-01T00:00:00Z"
NOW = datetime(2026, 2, 1, tzinfo=UTC)


def _object(kind: str, name: str, *, namespace: str = "", metadata: Object | None = None, **fields: Any) -> Object:
    stored = {"uid": f"uid-{name}", "creationTimestamp": CREATED, "resourceVersion": "1", **(metadata or {})}
    return api_object(kind, name, namespace=namespace, metadata=stored, **fields)


def with_uid(obj: Object) -> Object:
    """An object of manifests as an API server has it."""
    return obj | {"metadata": {"uid": f"uid-{obj['metadata']['name']}", "resourceVersion": "1", **obj["metadata"]}}


def node(name: str, *, labels: dict[str, str] | None = None, allocatable: dict[str, str] | None = None) -> Object:
    metadata = {"labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    return _object("Node", name, metadata=metadata, status={"allocatable": allocatable or {}})


def device_class(name: str = "gpu", *, selectors: Sequence[str] = (), extended: str | None = None) -> Object:
    spec: Object = {"selectors": parts.selectors(*selectors)}
    return _object("DeviceClass", name, spec=spec | ({"extendedResourceName": extended} if extended else {}))


def local_slice(node_name: str, devices: int = 1, **device: Any) -> Object:
    """A pool of a node's own, with devices gpu-0, gpu-1, ..."""
    return _slice(node_name, devices, device, nodeName=node_name)


def network_slice(name: str, devices: int = 1, **device: Any) -> Object:
    """A pool that every node reaches."""
    return _slice(name, devices, device, allNodes=True)


def _slice(name: str, devices: int, device: Object, **placement: Any) -> Object:
    published = [{"name": f"gpu-{index}", **device} for index in range(devices)]
    return _object("ResourceSlice", f"slice-{name}", spec=slice_spec(name, published, **placement))


def request(name: str = "gpu", *, device_class: str = "gpu", count: int = 1, selectors: Sequence[str] = ()) -> Object:
    return exactly(name, device_class, count, *selectors)


def claim(
    name: str,
    *requests: Object,
    allocated: Sequence[str] = (),
    at: str = "",
    users: Sequence[str] = (),
    metadata: Object | None = None,
) -> Object:
    """A claim in namespace "ns"; ``allocated`` are devices as ``pool/device``, ``at`` is the node that reaches them.

    Args:
        users: names of the pods that it is reserved for.
    """
    status: Object = {}
    if allocated:
        results = [(pool, device) for pool, _, device in (each.partition("/") for each in allocated)]
        status["allocation"] = allocation(results, at=at)
    if users:
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users]
    spec = claim_spec(requests or [request()])
    return _object("ResourceClaim", name, namespace="ns", metadata=metadata, spec=spec, status=status)


def claim_template(name: str = "gpu", *requests: Object) -> Object:
    """A template in namespace "ns"."""
    return _object("ResourceClaimTemplate", name, namespace="ns", spec={"spec": claim_spec(requests or [request()])})


def pod(
    name: str = "p",
    *claims: str,
    on: str = "",
    nominated: str = "",
    priority: int = 0,
    deleting: bool = False,
    labels: dict[str, str] | None = None,
    created: str = CREATED,
    resources: dict[str, str] | None = None,
) -> Object:
    """A pod in namespace "ns" that uses claims by name."""
    metadata: Object = {"labels": labels or {}, "creationTimestamp": created}
    metadata |= {"deletionTimestamp": CREATED} if deleting else {}
    limits = {name: amount for name, amount in (resources or {}).items() if "/" in name}
    asked: Object = {"requests": resources or {}} | ({"limits": limits} if limits else {})
    spec: Object = {
        "containers": [{"name": "c", "image": "i", "resources": asked}],
        "priority": priority,
        "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
    }
    spec |= {"nodeName": on} if on else {}
    status: Object = {"phase": "Running" if on else "Pending"}
    status |= {"nominatedNodeName": nominated} if nominated else {}
    return _object("Pod", name, namespace="ns", metadata=metadata, spec=spec, status=status)


def pinned(name: str = "p", *claims: str, on: str = "n", **more: Any) -> Object:
    """A pod whose author has chosen its node; kubelet has not started it."""
    return {**pod(name, *claims, on=on, **more), "status": {"phase": "Pending"}}


def budget(name: str, labels: dict[str, str], allowed: int) -> Object:
    spec = {"selector": {"matchLabels": labels}}
    status = {"disruptionsAllowed": allowed}
    return _object("PodDisruptionBudget", name, namespace="ns", spec=spec, status=status)


def taint_rule(name: str, **selector: str) -> Object:
    taint = {"key": "broken", "effect": "NoSchedule"}
    spec = {"deviceSelector": selector, "taint": taint}
    return _object("DeviceTaintRule", name, spec=spec)


GPU = device_class(selectors=[f'device.driver == "{DRIVER}"'])
"""The class "gpu": all devices of the driver."""


def parsed(raw: Object) -> Pod:
    return parse_pod(raw)


def state_of(objects: Iterable[Object]) -> ClusterState:
    """A synced state that knows the objects."""
    state = ClusterState()
    for resource in RESOURCES.values():
        state.replace(resource, [], 0)
    for each in objects:
        state.apply(Event(EventType.ADDED, RESOURCES[each["kind"]], each))
    assert not state.snapshot.problems
    return state


def snapshot_of(*objects: Object) -> Snapshot:
    return state_of(objects).snapshot


def asking(asked: Object, *names: str) -> Object:
    """What kube-scheduler sends to filter and prioritize, with the names of nodes."""
    return {"Pod": asked, "Nodes": None, "NodeNames": list(names)}


def rejected(*objects: Object) -> list[Object]:
    """The same objects. The pods have the condition that a scheduler writes if it finds no node."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0 nodes"}
    return [
        each | {"status": each["status"] | {"conditions": [condition]}} if each["kind"] == "Pod" else each
        for each in objects
    ]


def binding(name: str, on: str) -> Object:
    """What kube-scheduler sends to bind a pod of namespace "ns"."""
    return {"PodName": name, "PodNamespace": "ns", "PodUID": f"uid-{name}", "Node": on}


def solver(*, limits: Limits | None = None, features: Features | None = None) -> Solver:
    """First-fit, with a clock that stands still and share ids that count."""
    ids = count()
    return Solver(
        selectors=Selectors(),
        clock=lambda: 0.0,
        new_share_id=lambda: f"share-{next(ids)}",
        plugins=PLUGINS,
        policy=FIRST_FIT,
        limits=limits or Limits(),
        features=features or Features(),
    )


class HeldClock:
    """The clock of a solver: a search in a thread stops at it, until it is let go.

    Attributes:
        reached: a search has come to it.
        go: lets the search go on.
    """

    def __init__(self) -> None:
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self) -> float:
        if threading.current_thread() is not threading.main_thread():
            self.reached.set()
            self.go.wait()
        return 0.0


class Cluster:
    """An API server in memory and the state that follows it."""

    def __init__(self, state: ClusterState, api: MemoryApi) -> None:
        self.state = state
        self.api = api

    @classmethod
    def of(cls, *objects: Object, counts_resources: bool = False, has_group_claims: bool = False) -> "Cluster":
        """The cluster of some objects, with the gates DRANodeAllocatableResources and DRAWorkloadResourceClaims."""
        ids = count()
        api = MemoryApi(now=lambda: NOW, new_uid=lambda: f"{next(ids):05}-made")
        cluster = cls(ClusterState(counts_resources=counts_resources, has_group_claims=has_group_claims), api)
        for each in objects:
            cluster.load(each)
        api.follow(cluster.state)
        return cluster

    def load(self, obj: Object) -> None:
        """Put an object there as it is."""
        self.api.load(RESOURCES[obj["kind"]], obj)

    async def settle(self) -> None:
        """Let the controllers make claims from templates, and release what is left behind."""
        await ClaimController(self.api).reconcile()

    def service(self, settings: Settings | None = None, off_loop: Offload = in_thread) -> Service:
        """The verbs, first-fit."""
        return self.extender(settings, off_loop).service

    def extender(
        self, settings: Settings | None = None, off_loop: Offload = in_thread, around: Surroundings = ALONE
    ) -> Extender:
        """All that answers about the cluster, first-fit."""
        return make_extender(self.api, self.state, solver(), settings or Settings(), around=around, off_loop=off_loop)

    def app(self, settings: Settings | None = None, listener: Listener = Listener.SERVER) -> FastAPI:
        """The application of a listener."""
        return app_over(self.extender(settings), settings, listener)

    async def node_of(self, name: str) -> str:
        """Where a pod of namespace "ns" is bound; empty while it is pending."""
        return parse_pod(await self.api.get(PODS, ObjectKey("ns", name))).node_name


def app_over(extender: Extender, settings: Settings | None = None, listener: Listener = Listener.SERVER) -> FastAPI:
    """The application over a cluster, with an autoscaler's verbs over its cluster."""
    found = settings or Settings()
    negotiating = Negotiating(extender.negotiation.controllers, extender.overview.api)
    autoscaler = make_autoscaler(extender.service, negotiating, solver(), found, read_catalog(found))
    return create_app(extender, autoscaler, found, listener)


def client_of(app: FastAPI) -> AsyncClient:
    """A client of an application, without a network."""
    return AsyncClient(transport=ASGITransport(app), base_url="http://localhost")
