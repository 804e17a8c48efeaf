"""Schedules the pending pods of a cluster in memory, one after the other, with the verbs of the service."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from allocator import DeviceResult
from extender.cli.explain import Answer, InquiryError
from extender.explain.document import as_json
from extender.fakekube.cluster import EmbeddedCluster
from extender.fakekube.manifests import RawObject as Manifest
from extender.kube.api import NODES, PODS, ApiError, ObjectKey
from extender.pods.claims import claim_keys
from extender.scheduler.attempts import no_attempt
from extender.scheduler.checks import SchedulerChecks
from extender.service import RefusedError, Service
from extender.state.objects import Pod, parse_pod
from extender.state.snapshot import Snapshot
from extender.verbs.wire import BindArgs, FilterArgs


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
    """Conditions of the pods with devices that kube-scheduler checks and a simulation ignores, each once."""
    pods = (parse_pod(each.data) for each in objects if each.kind == PODS.kind)
    return tuple(dict.fromkeys(what for pod in pods if pod.needs_devices for what in pod.unmodeled))


async def simulate(
    service: Service, cluster: EmbeddedCluster, schedulers: Collection[str] = (), *, before: ObjectKey | None = None
) -> tuple[Placement, ...]:
    """Schedule every pending pod, the oldest first; pods of equal age in the order of the manifests.

    Args:
        service: over the cluster.
        cluster: is changed by the simulation.
        schedulers: names of the schedulers that call the service; empty: any.
        before: schedule only the pods that come before this pod; None: all.
    """
    pods = map(parse_pod, (await cluster.api.list(PODS)).items)
    pending = sorted((pod for pod in pods if pod.is_pending), key=lambda pod: pod.created)
    snapshot = cluster.state.snapshot
    checks = SchedulerChecks(snapshot.nodes, snapshot.pods.values())
    nodes = [node["metadata"]["name"] for node in (await cluster.api.list(NODES)).items]
    placed: list[Placement] = []
    for pod in pending:
        if pod.key == before:
            break
        faults: list[str] = []
        with service.faults.of(f"pod {pod}", faults.append):
            if reason := no_attempt(pod, schedulers):
                placed.append(Placement(str(pod), reason=reason))
            else:
                placed.append(await _place(service, cluster, checks, nodes, pod))
        placed += [Placement(str(pod), reason=fault) for fault in faults]
    return tuple(placed)


async def explained_at_turn(
    service: Service, cluster: EmbeddedCluster, pod: ObjectKey, schedulers: Collection[str] = ()
) -> Answer:
    """The explanation of a pod in the cluster that it meets at its turn in the simulation.

    Args:
        service: over the cluster; its settings name the schedulers, too.
        cluster: is changed by the simulation.
        pod: to explain. If it is not pending, the whole simulation goes first.
        schedulers: as for `simulate`.

    Raises:
        InquiryError: there is no such pod.
    """
    try:
        raw = await cluster.api.get(PODS, pod)
    except ApiError as error:
        raise InquiryError(f"pod {pod} does not exist") from error
    await simulate(service, cluster, schedulers, before=pod)
    return Answer(as_json(await service.explain(parse_pod(raw))))


async def _place(
    service: Service, cluster: EmbeddedCluster, checks: SchedulerChecks, nodes: Sequence[str], pod: Pod
) -> Placement:
    reasons = checks.rejections(pod)
    names = [name for name in nodes if name not in reasons]
    args = FilterArgs(pod, names)
    try:
        result = await service.filter(args)
        against = {**reasons, **result.unresolvable, **result.failed}
        if not result.passed:
            return Placement(str(pod), reason=_summary(against[name] for name in nodes))
        scores = await service.prioritize(FilterArgs(pod, result.passed))
        node = result.passed[scores.index(max(scores))]
        await service.bind(BindArgs(pod.name, pod.namespace, pod.uid, node))
    except (RefusedError, TimeoutError) as error:
        return Placement(str(pod), reason=str(error) or "not decided in time")
    checks.place(pod, node)
    await cluster.settle()
    return Placement(str(pod), node, _devices(pod, cluster.state.snapshot))


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
