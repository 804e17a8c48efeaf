"""Schedules the pending pods of a cluster in memory, one after the other, with the verbs of the service."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator import DeviceResult, Fields
from extender.fakekube.cluster import EmbeddedCluster
from extender.fakekube.manifests import RawObject as Manifest
from extender.kube.api import NODES, PODS, RawObject, Resource
from extender.pods.claims import claim_keys
from extender.pods.extended_resources.plugins import PluginCapacity
from extender.service import RefusedError, Service
from extender.state.objects import Pod, is_extended, parse_node_object, parse_pod
from extender.state.snapshot import Snapshot
from extender.verbs.wire import BindArgs, FilterArgs

_IGNORED: Final[Sequence[tuple[Resource, str, Callable[[Fields], bool]]]] = (
    (PODS, "requests of CPU and memory", lambda spec: any(map(_asks_for_more, spec.children("containers")))),
    (PODS, "affinity", lambda spec: spec.has("affinity")),
    (PODS, "topology spread", lambda spec: spec.has("topologySpreadConstraints")),
    (PODS, "volumes", lambda spec: any(each.has("persistentVolumeClaim") for each in spec.children("volumes"))),
    (NODES, "taints of nodes", lambda spec: spec.has("taints")),
)
"""What kube-scheduler considers and a simulation ignores, and whether a spec has it."""


@dataclass(frozen=True, slots=True)
class PlacedDevice:
    """A device of a pod, and its claim."""

    claim: str
    result: DeviceResult

    def __str__(self) -> str:
        share = f" ({amounts})" if (amounts := self._amounts()) else ""
        return f"{self.result.device}{share}"

    def as_json(self) -> dict[str, object]:
        """The device as in an allocation result, with the claim."""
        driver, pool, device = self.result.device
        found: dict[str, object] = {
            "claim": self.claim,
            "request": self.result.request,
            "driver": driver,
            "pool": pool,
            "device": device,
        }
        if self.result.consumed_capacity is not None:
            found["consumedCapacity"] = {name: str(amount) for name, amount in self.result.consumed_capacity.items()}
        return found

    def _amounts(self) -> str:
        return ", ".join(f"{name}: {amount}" for name, amount in (self.result.consumed_capacity or {}).items())


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod's node and devices, or the reason why it has none."""

    pod: str
    node: str = ""
    devices: tuple[PlacedDevice, ...] = ()
    reason: str = ""

    def as_json(self) -> dict[str, object]:
        """A placement for programs."""
        return {
            "pod": self.pod,
            "node": self.node or None,
            "devices": [device.as_json() for device in self.devices],
            "reason": self.reason or None,
        }


def overlooked(objects: Iterable[Manifest]) -> tuple[str, ...]:
    """What a simulation ignores that these nodes, and these pods with devices, have."""
    counting = (each for each in objects if each.kind != PODS.kind or parse_pod(each.data).needs_devices)
    specs = [(each.kind, Fields(each.data, "", []).child("spec")) for each in counting]
    return tuple(
        what for resource, what, has in _IGNORED if any(kind == resource.kind and has(spec) for kind, spec in specs)
    )


def _asks_for_more(container: Fields) -> bool:
    return any(not is_extended(name) for name in container.child("resources").mapping("requests"))


async def simulate(service: Service, cluster: EmbeddedCluster) -> tuple[Placement, ...]:
    """Schedule every pending pod, the oldest first; pods of equal age in the order of the manifests."""
    pending = [pod for pod in (await cluster.api.list(PODS)).items if _is_pending(pod)]
    pending.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    plugins = PluginCapacity(cluster.state.snapshot.pods.values())
    placed: list[Placement] = []
    for raw in pending:
        faults: list[str] = []
        with service.faults.of(f"pod {parse_pod(raw)}", faults.append):
            placed.append(await _place(service, cluster, plugins, raw))
        placed += [Placement(str(parse_pod(raw)), reason=fault) for fault in faults]
    return tuple(placed)


async def _place(service: Service, cluster: EmbeddedCluster, plugins: PluginCapacity, raw: RawObject) -> Placement:
    nodes, pod = (await cluster.api.list(NODES)).items, parse_pod(raw)
    reasons = {node["metadata"]["name"]: scheduler_reason(raw, node) or _shortage(plugins, pod, node) for node in nodes}
    names = [name for name, reason in reasons.items() if not reason]
    args = FilterArgs(pod, names)
    try:
        result = await service.filter(args)
        against = {**reasons, **result.unresolvable, **result.failed}
        if not result.passed:
            return Placement(str(pod), reason=_summary(against[name] for name in reasons))
        scores = await service.prioritize(FilterArgs(pod, result.passed))
        node = result.passed[scores.index(max(scores))]
        await service.bind(BindArgs(pod.name, pod.namespace, pod.uid, node))
    except (RefusedError, TimeoutError) as error:
        return Placement(str(pod), reason=str(error) or "not decided in time")
    plugins.take(pod, node)
    await cluster.settle()
    return Placement(str(pod), node, _devices(pod, cluster.state.snapshot))


def scheduler_reason(pod: RawObject, node: RawObject) -> str:
    """Why the pod's own spec keeps it off a node; empty if it does not.

    A small part of kube-scheduler's checks: nodeSelector, and unschedulable nodes.
    """
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return "node does not match spec.nodeSelector"
    return "node is unschedulable" if (node.get("spec") or {}).get("unschedulable") else ""


def _shortage(plugins: PluginCapacity, pod: Pod, node: RawObject) -> str:
    """kube-scheduler's reason where a device plugin of the node has too little left."""
    resource = plugins.lacking(pod, parse_node_object(node)) if pod.containers else ""
    return f"Insufficient {resource}" if resource else ""


def _is_pending(pod: RawObject) -> bool:
    bound = pod["spec"].get("nodeName")
    phase = (pod.get("status") or {}).get("phase", "Pending")
    return not bound and phase == "Pending" and not pod["metadata"].get("deletionTimestamp")


def _summary(reasons: Iterable[str]) -> str:
    """Equal reasons counted, as kube-scheduler does: ``3 no free device for request gpu, 1 node is unschedulable``."""
    counts = Counter(reasons)
    return ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items())) or "there are no nodes"


def _devices(pod: Pod, snapshot: Snapshot) -> tuple[PlacedDevice, ...]:
    now = snapshot.pods.get(pod.key, pod)
    found = []
    for key in claim_keys(now):
        claim = snapshot.claims.get(key)
        allocation = claim.claim.allocation if claim else None
        found += [PlacedDevice(key.name, result) for result in (allocation.results if allocation else ())]
    return tuple(found)
