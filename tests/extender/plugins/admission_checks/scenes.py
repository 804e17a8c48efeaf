"""Clusters with jobs of Kueue, and the task that answers their checks."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from extender.cluster.writes.lease import SharedLease
from extender.config.settings import AdmissionCheckSettings
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import WORKLOADS
from extender.plugins.admission_checks import CONTROLLER
from extender.plugins.admission_checks.answers import Times
from extender.plugins.admission_checks.task import LEASE, AdmissionChecks, CheckMetrics, Judges
from extender.tools.offload import Offload, at_once
from tests.kit.clusters import GPU, Cluster, Object, claim_template, local_slice, node, pod, solver
from tests.kit.objects.parts import api_object
from tests.kit.servers.memory import Transport

VERSION = "kueue.x-k8s.io/v1beta2"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
RESERVED = "2026-03-01T12:00:00Z"
KEEP_SECONDS = AdmissionCheckSettings().keep_seconds
BACK_SECONDS = 300


def check(name: str = "devices", controller: str = CONTROLLER, *, active: bool = True) -> Object:
    """An AdmissionCheck."""
    condition = {"type": "Active", "status": "True", "observedGeneration": 1, "lastTransitionTime": RESERVED}
    status: Object = {"conditions": [condition] if active else []}
    metadata = {"uid": f"uid-{name}", "resourceVersion": "1", "generation": 1}
    spec = {"controllerName": controller}
    return api_object("AdmissionCheck", name, apiVersion=VERSION, metadata=metadata, spec=spec, status=status)


def flavor(name: str = "any", **spec: Any) -> Object:
    """A ResourceFlavor."""
    metadata = {"uid": f"uid-{name}", "resourceVersion": "1"}
    return api_object("ResourceFlavor", name, apiVersion=VERSION, metadata=metadata, spec=spec)


def template(*templates: str, claim: str = "", resources: dict[str, str] | None = None, **metadata: Any) -> Object:
    """The template of pods that use templates of claims, one claim by name, or extended resources."""
    spec = dict(pod("t", resources=resources)["spec"])
    spec.pop("priority")
    claims: list[Object] = [{"name": each, "resourceClaimTemplateName": each} for each in templates]
    claims += [{"name": claim, "resourceClaimName": claim}] if claim else []
    return {"metadata": metadata, "spec": {**spec, "resourceClaims": claims}}


def on_node(of: Object, node: str) -> Object:
    """The template of pods whose author has chosen the node."""
    return {**of, "spec": {**of["spec"], "nodeName": node}}


def pods(name: str = "main", count: int = 1, of: Object | None = None) -> Object:
    """A pod set; its pods use the template of claims "gpu"."""
    return {"name": name, "count": count, "template": template("gpu") if of is None else of}


def state(name: str = "devices", state: str = "Pending", message: str = "", **more: Any) -> Object:
    """The entry of a check."""
    return {"name": name, "state": state, "message": message, "lastTransitionTime": RESERVED, **more}


def workload(
    name: str,
    *pod_sets: Object,
    namespace: str = "ns",
    checks: Sequence[Object] | None = None,
    conditions: Sequence[str] = ("QuotaReserved",),
    assigned: Sequence[Object] | None = None,
    **spec: Any,
) -> Object:
    """A workload with quota that waits for the check."""
    sets = list(pod_sets) or [pods()]
    metadata = {"uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": RESERVED}
    true = [{"type": each, "status": "True", "lastTransitionTime": RESERVED} for each in conditions]
    assignments = [{"name": each["name"], "count": each["count"]} for each in sets] if assigned is None else assigned
    status = {
        "conditions": true,
        "admission": {"clusterQueue": "q", "podSetAssignments": [*assignments]},
        "admissionChecks": [state()] if checks is None else list(checks),
    }
    return api_object(
        "Workload",
        name,
        namespace=namespace,
        apiVersion=VERSION,
        metadata=metadata,
        spec={"podSets": sets, **spec},
        status=status,
    )


def site(devices: int = 2, names: str = "ab") -> list[Object]:
    """Nodes with devices, and the template of claims for one of them."""
    machines = [each for name in names for each in (node(name), local_slice(name, devices))]
    return [GPU, claim_template(), check(), *machines]


def by(name: str, place: int = 0) -> dict[str, str]:
    """The labels of a pod that the check has let in."""
    return {"dra-extender.dev/admitted-for": f"uid-{name}.{place}"}


class Scene:
    """A cluster with a replica that answers, and the time. Of objects with one name, the last one is there.

    Attributes:
        looks: seconds that pass with each look at the clock of searches.
        number: of these looks.
        transport: to the API server.
    """

    def __init__(self, *objects: Object, back: int = BACK_SECONDS) -> None:
        latest = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each for each in objects}
        self.cluster = Cluster.of(*latest.values())
        self.seconds = self.looks = 0.0
        self.number = 0
        self.back = back
        self.registry = CollectorRegistry()
        self.transport = Transport(self.cluster.api)
        self.task = self.replica("first")

    def replica(self, name: str, off_loop: Offload = at_once) -> AdmissionChecks:
        """A process that may answer. ``off_loop`` is where it judges."""
        times = Times(timedelta(seconds=KEEP_SECONDS), timedelta(seconds=self.back) if self.back else None)
        judges = Judges(replace(solver(), clock=self.clock), (), off_loop)
        lease = SharedLease(self.transport, LEASE, name, self.now, lambda: self.seconds)
        registry = self.registry if name == "first" else CollectorRegistry()
        return AdmissionChecks(
            self.cluster.state, self.transport, lease, judges, times, self.now, CheckMetrics(registry)
        )

    def clock(self) -> float:
        """The time of searches; it passes a little with each look."""
        self.seconds += self.looks
        self.number += 1
        return self.seconds

    def now(self) -> datetime:
        """The time."""
        return START + timedelta(seconds=self.seconds)

    async def turns(self, number: int = 4, seconds: float = 1.0) -> None:
        """The task has some turns."""
        for _ in range(number):
            self.seconds += seconds
            await self.task.tick()
            await asyncio.gather(*self.task.unfinished)

    async def raw(self, name: str, namespace: str = "ns") -> RawObject:
        """A workload."""
        return await self.cluster.api.get(WORKLOADS, ObjectKey(namespace, name))

    async def entry(self, name: str, check: str = "devices", namespace: str = "ns") -> Mapping[str, Any]:
        """The entry of a check for a job."""
        states = (await self.raw(name, namespace))["status"]["admissionChecks"]
        return next(each for each in states if each["name"] == check)

    async def told(self, name: str, namespace: str = "ns") -> tuple[str, str]:
        """State and message for a job."""
        entry = await self.entry(name, namespace=namespace)
        return entry["state"], entry["message"]

    async def change(self, name: str, **status: Any) -> None:
        """Somebody writes fields of a workload's status."""
        await self.cluster.api.patch_status(WORKLOADS, ObjectKey("ns", name), {"status": status})
