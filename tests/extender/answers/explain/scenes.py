"""Pods and clusters to be explained, in few words."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from allocator import DeviceId, Features, parse_claim
from allocator.policies import POLICIES, Shape
from extender.answers.explain.explainer import Explainer
from extender.answers.explain.explanation import Explanation
from extender.cluster.indexes import AssumedAllocation
from extender.cluster.objects.claims import POD_CLAIM_NAME
from extender.cluster.objects.pods import KEPT, Keeping
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.shapes import Shapes
from extender.framework.decisions.solver import Solver
from extender.kube.api import ObjectKey
from extender.kube.claim_rules import FINALIZER
from tests.kit.clusters import (
    CREATED,
    DRIVER,
    GPU,
    Object,
    claim,
    device_class,
    node,
    pod,
    request,
    snapshot_of,
    solver,
)
from tests.kit.objects.parts import api_object, slice_spec

MODEL = f'device.attributes["{DRIVER}"].model'
VERSION = f'device.attributes["{DRIVER}"].version'
MEMORY = f'device.capacity["{DRIVER}"].memory'


@dataclass(frozen=True)
class Case:
    """A pod in a cluster."""

    objects: tuple[Object, ...]
    solver: Solver = field(default_factory=solver)
    change: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot
    nodes: tuple[str, ...] | None = None

    def explained(self) -> Explanation:
        snapshot = self.change(snapshot_of(*self.objects))
        return Explainer.alone(snapshot, self.solver).explain(snapshot.pods[ObjectKey("ns", "p")], self.nodes)


# --- clusters in few words ---------------------------------------------------------------------------------


def pool(
    at: str,
    *devices: Object,
    counters: Object | None = None,
    part: str = "",
    spec: Object | None = None,
    **fields: Any,
) -> Object:
    """The slice of a node, whose devices are its pool, or a part of them."""
    published: Object = {"sharedCounters": [{"name": "silicon", "counters": counters}]} if counters else {}
    whole = slice_spec(at, devices, nodeName=at)
    if published:
        del whole["devices"]
    whole |= published | {"pool": whole["pool"] | fields} | (spec or {})
    name = f"slice-{at}" + (f"-{part}" if part else "-counters" if counters else "")
    return api_object("ResourceSlice", name, metadata={"uid": f"uid-{name}", "creationTimestamp": CREATED}, spec=whole)


def gpu(name: str, model: str = "a100", memory: str = "40Gi", **fields: Any) -> Object:
    attributes = {"model": {"string": model}, **fields.pop("attributes", {})}
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}, **fields}


def gpus(count: int, **fields: Any) -> list[Object]:
    return [gpu(f"gpu-{number}", **fields) for number in range(count)]


def two_gpus(at: str, **fields: Any) -> tuple[Object, Object]:
    """A node with two devices."""
    return node(at), pool(at, *gpus(2, **fields))


def weighing(*shapes: tuple[float, Object]) -> Solver:
    """A solver by fragmentation that knows how often requests are asked."""
    found = solver()
    asked = {Shape(parse_claim(claim("c", each)).spec.requests): weight for weight, each in shapes}
    shapes_known = Shapes(found.selectors, found.features, asked)
    return replace(found, policy=POLICIES["fragmentation"], shapes=shapes_known)


def wants(*requests: Object, constraints: tuple[Object, ...] = ()) -> tuple[Object, ...]:
    """The pod and its claim."""
    mine = claim("mine", *requests)
    if constraints:
        mine["spec"]["devices"]["constraints"] = list(constraints)
    return (GPU, mine, pod("p", "mine"))


def held(name: str, *devices: str, at: str = "a", priority: int = 0) -> tuple[Object, Object]:
    """A running pod, and the claim that it uses."""
    user = pod(name, f"{name}-gpu", on=at, priority=priority)
    return user, claim(f"{name}-gpu", allocated=devices, at=at, users=[name], metadata={"finalizers": [FINALIZER]})


def owned_by(kind: str, name: str, user: Object, *others: Object) -> tuple[Object, ...]:
    """A pod with a controller, and other objects."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return {**user, "metadata": {**user["metadata"], "ownerReferences": [owner]}}, *others


def kept_for(name: str, of: str, at: str, device: str) -> Object:
    """A pod for which others were evicted, and which has a device of a node kept."""
    keeping = Keeping(at, (DeviceId(DRIVER, at, device),), ("uid-gone",))
    condition = {"type": KEPT, "status": "True", "message": keeping.message}
    waiting = pod(name, of, nominated=at, priority=9)
    return {**waiting, "status": waiting["status"] | {"conditions": [condition]}}


def with_fields(wanted: Object, **fields: Any) -> Object:
    return {**wanted, "exactly": {**wanted["exactly"], **fields}}


def templated(template: str = "gpu", made: bool = False) -> Object:
    """The pod, with a claim that is made from a template."""
    found = pod("p")
    found["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    if made:
        found["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "mine"}]
    return found


def selecting(labels: dict[str, str]) -> Object:
    """The pod, with a node selector."""
    return with_spec(pod("p", "mine"), nodeSelector=labels)


def near(*names: str) -> Object:
    """The pod, with a required affinity to nodes."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(names)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return with_spec(pod("p", "mine"), affinity={"nodeAffinity": required})


def gated(*gates: str) -> Object:
    """The pod, with scheduling gates."""
    return with_spec(pod("p", "mine"), schedulingGates=[{"name": name} for name in gates])


def tainted(on: Object) -> Object:
    return with_spec(on, taints=[{"key": "team", "value": "ml", "effect": "NoSchedule"}])


def unschedulable(on: Object) -> Object:
    return with_spec(on, unschedulable=True)


def with_spec(of: Object, **fields: Any) -> Object:
    return {**of, "spec": {**of.get("spec", {}), **fields}}


def made_claim(count: int) -> Object:
    """The claim that was made for the pod from its template."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    made = {"annotations": {POD_CLAIM_NAME: "gpu"}, "ownerReferences": [owner]}
    return claim("mine", request(count=count), metadata=made)


def reserved_for_experiment(device: str) -> Object:
    """A claim whose user is no pod."""
    own = claim("theirs", allocated=[device], at="a", metadata={"finalizers": [FINALIZER]})
    user = {"apiGroup": "lab.example.com", "resource": "experiments", "name": "x", "uid": "uid-x"}
    own["status"]["reservedFor"] = [user]
    return own


def versioned(version: str) -> Object:
    return {"attributes": {"version": {"version": version}}}


def featured(**features: bool) -> Solver:
    return replace(solver(), features=replace(Features(), **features))


def being_allocated(snapshot: Snapshot) -> Snapshot:
    """The other pod's claim is decided, and not written yet."""
    other = snapshot.claims[ObjectKey("ns", "other-gpu")].claim
    assert other.allocation is not None
    freed = replace(
        snapshot.claims[ObjectKey("ns", "other-gpu")], claim=replace(other, allocation=None, reserved_for=())
    )
    return snapshot.with_claim(freed).assuming(AssumedAllocation(other.uid, "uid-other", other.allocation))


def shared_claim(users: int) -> Object:
    return claim("mine", allocated=["a/gpu-0"], at="a", users=[f"user-{number}" for number in range(users)])


def partition(name: str, memory: int, **fields: Any) -> Object:
    consumed = {"counterSet": "silicon", "counters": {"memory": {"value": f"{memory}Gi"}}}
    return {"name": name, "consumesCounters": [{**consumed, **fields}]}


SHARED = {"allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10G"}}}
SHARED_MEMORY = {
    "allowMultipleAllocations": True,
    "capacity": {"bandwidth": {"value": "10G"}, "memory": {"value": "40Gi"}},
}
PARTITIONS = (pool("a", counters={"memory": {"value": "40Gi"}}, resourceSliceCount=2),)


def consuming(name: str, bandwidth: str, device: str = "a/gpu-0", **more: str) -> tuple[Object, Object]:
    """A running pod with a share of a device, some bandwidth."""
    return sharing(name, device, bandwidth=bandwidth, **more)


def sharing(name: str, device: str = "a/gpu-0", **amounts: str) -> tuple[Object, Object]:
    """A running pod with a share of a device."""
    user, own = held(name, device)
    result = own["status"]["allocation"]["devices"]["results"][0]
    share = str(uuid5(NAMESPACE_URL, name))
    result |= {"shareID": share, "consumedCapacity": amounts}
    return user, own


def root(name: str) -> Object:
    return {"attributes": {"root": {"string": name}}}


EXTENDED = (device_class(extended="example.com/gpu"), pod("p", resources={"example.com/gpu": "1"}))
SAME_ROOT = {"matchAttribute": f"{DRIVER}/root"}
NODE_OPERATIONS = {"skipNodeOperations": ["NodePrepareResources", "NodeUnprepareResources"]}
BROKEN: Object = {"taints": [{"key": "example.com/broken", "value": "fan", "effect": "NoSchedule"}]}
DEAD: Object = {"taints": [{"key": "example.com/away", "effect": "NoExecute"}]}
