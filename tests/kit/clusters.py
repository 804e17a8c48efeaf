"""Small clusters, in few words: raw API objects, and snapshots, services and applications over them."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from prometheus_client import CollectorRegistry

from allocator import FIRST_FIT, Features, Limits, Selectors
from extender.config.settings import Settings
from extender.decisions.solver import Solver
from extender.fakekube.api import MemoryApi
from extender.fakekube.controllers import Controller
from extender.http.app import create_app
from extender.kube.api import PODS, RESOURCES, ObjectKey
from extender.kube.raw import Event, EventType
from extender.observe.metrics import Metrics
from extender.service import Service
from extender.serving.run import make_autoscaler, make_service, read_catalog
from extender.state.objects import Pod, parse_pod
from extender.state.snapshot import Snapshot
from extender.state.state import ClusterState

Object = dict[str, Any]

DRIVER = "gpu.example.com"
CREATED = "2026-01-01T00:00:00Z"
NOW = datetime(2026, 2, 1, tzinfo=UTC)


def _object(kind: str, api_version: str, name: str, *, namespace: str = "", **fields: Any) -> Object:
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": CREATED, "resourceVersion": "1"}
    metadata |= {"namespace": namespace} if namespace else {}
    metadata |= fields.pop("metadata", {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def node(name: str, *, labels: dict[str, str] | None = None, allocatable: dict[str, str] | None = None) -> Object:
    fields: Object = {"metadata": {"labels": {"kubernetes.io/hostname": name, **(labels or {})}}}
    return _object("Node", "v1", name, **fields, status={"allocatable": allocatable or {}})


def device_class(name: str = "gpu", *, selectors: Sequence[str] = (), extended: str | None = None) -> Object:
    spec: Object = {"selectors": [{"cel": {"expression": each}} for each in selectors]}
    spec |= {"extendedResourceName": extended} if extended else {}
    return _object("DeviceClass", "resource.k8s.io/v1", name, spec=spec)


def local_slice(node_name: str, devices: int = 1, **device: Any) -> Object:
    """A pool of a node's own, with devices gpu-0, gpu-1, ..."""
    return _slice(node_name, devices, device, nodeName=node_name)


def network_slice(name: str, devices: int = 1, **device: Any) -> Object:
    """A pool that every node reaches."""
    return _slice(name, devices, device, allNodes=True)


def _slice(name: str, devices: int, device: Object, **placement: Any) -> Object:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    published = [{"name": f"gpu-{index}", **device} for index in range(devices)]
    spec = {"driver": DRIVER, "pool": pool, "devices": published, **placement}
    return _object("ResourceSlice", "resource.k8s.io/v1", f"slice-{name}", spec=spec)


def request(name: str = "gpu", *, device_class: str = "gpu", count: int = 1, selectors: Sequence[str] = ()) -> Object:
    expressions = [{"cel": {"expression": each}} for each in selectors]
    exactly = {"deviceClassName": device_class, "count": count, "allocationMode": "ExactCount"}
    return {"name": name, "exactly": {**exactly, **({"selectors": expressions} if expressions else {})}}


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
    spec = {"devices": {"requests": list(requests) or [request()]}}
    status: Object = {}
    if allocated:
        pairs = [each.split("/") for each in allocated]
        results = [{"request": "gpu", "driver": DRIVER, "pool": pool, "device": device} for pool, device in pairs]
        status["allocation"] = {"devices": {"results": results}}
        if at:
            fields = [{"key": "metadata.name", "operator": "In", "values": [at]}]
            status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": fields}]}
    if users:
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users]
    obj = _object("ResourceClaim", "resource.k8s.io/v1", name, namespace="ns", spec=spec, status=status)
    obj["metadata"] |= metadata or {}
    return obj


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
    spec: Object = {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": resources or {}}}],
        "priority": priority,
        "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
    }
    spec |= {"nodeName": on} if on else {}
    status: Object = {"phase": "Running" if on else "Pending"}
    status |= {"nominatedNodeName": nominated} if nominated else {}
    return _object("Pod", "v1", name, namespace="ns", metadata=metadata, spec=spec, status=status)


def budget(name: str, labels: dict[str, str], allowed: int) -> Object:
    spec = {"selector": {"matchLabels": labels}}
    status = {"disruptionsAllowed": allowed}
    return _object("PodDisruptionBudget", "policy/v1", name, namespace="ns", spec=spec, status=status)


def taint_rule(name: str, **selector: str) -> Object:
    taint = {"key": "broken", "effect": "NoSchedule"}
    spec = {"deviceSelector": selector, "taint": taint}
    return _object("DeviceTaintRule", "resource.k8s.io/v1", name, spec=spec)


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


def solver(*, limits: Limits | None = None, features: Features | None = None) -> Solver:
    """First-fit, with a clock that stands still and share ids that count."""
    ids = count()
    return Solver(
        selectors=Selectors(),
        clock=lambda: 0.0,
        new_share_id=lambda: f"share-{next(ids)}",
        policy=FIRST_FIT,
        limits=limits or Limits(),
        features=features or Features(),
    )


class Cluster:
    """An API server in memory and the state that follows it."""

    def __init__(self, state: ClusterState, api: MemoryApi) -> None:
        self.state = state
        self.api = api

    @classmethod
    def of(cls, *objects: Object) -> "Cluster":
        ids = count()
        api = MemoryApi(now=lambda: NOW, new_uid=lambda: f"{next(ids):05}-made")
        cluster = cls(ClusterState(), api)
        for each in objects:
            cluster.load(each)
        api.follow(cluster.state)
        return cluster

    def load(self, obj: Object) -> None:
        """Put an object there as it is."""
        self.api.load(RESOURCES[obj["kind"]], obj)

    async def settle(self) -> None:
        """Let the controllers make claims from templates, and release what is left behind."""
        await Controller(self.api).reconcile()

    def service(self, settings: Settings | None = None) -> Service:
        """The verbs, first-fit."""
        return make_service(self.api, self.state, solver(), settings or Settings(), Metrics(CollectorRegistry()))

    def app(self, settings: Settings | None = None) -> FastAPI:
        """The application."""
        return app_over(self.service(settings), self.state, settings)

    async def node_of(self, name: str) -> str:
        """Where a pod of namespace "ns" is bound; empty while it is pending."""
        return parse_pod(await self.api.get(PODS, ObjectKey("ns", name))).node_name


def app_over(service: Service, state: ClusterState, settings: Settings | None = None) -> FastAPI:
    """The application over a service, with an autoscaler's verbs over its cluster."""
    found = settings or Settings()
    return create_app(service, make_autoscaler(state, solver(), found, read_catalog(found)), found)


def client_of(app: FastAPI) -> AsyncClient:
    """A client of an application, without a network."""
    return AsyncClient(transport=ASGITransport(app), base_url="http://localhost")
