"""A cluster that is followed, and pods that ask for devices one after the other."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from allocator import AllocationResult, Claim, DeviceId, DeviceResult, Quantity, parse_claim
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.evaluate import Decided, Decider
from extender.kube.api import Event, EventType
from extender.kube.resources import RESOURCES
from tests.kit.clusters import DRIVER, Object, claim, local_slice, request, solver, state_of

NAMES = ("a", "b", "c")


class Scene:
    """A cluster that is followed, and pods that ask one after the other.

    Attributes:
        solved: nodes that the solver was asked about for the last pod.
    """

    solved = 0

    def __init__(self, *objects: Object, **limits: Any) -> None:
        self.state = state_of(objects)
        self.decider = Decider(solver(**limits), self.state)

    def ask(self, *requests: Object, names: tuple[str, ...] = NAMES, match: str = "", pod: str = "p") -> Decided:
        """The next pod with a claim of these requests."""
        before = self.decider.solved
        self.decider.follow(self.state.snapshot)
        decided = self.decide(asked(*requests, match=match, pod=pod), self.state.snapshot, names)
        self.solved = self.decider.solved - before
        return decided

    def decide(
        self, wanted: Claim, world: Snapshot, names: Sequence[str], sent: Mapping[str, NodeObject] | None = None
    ) -> Decided:
        """What is known is looked up, and the rest is evaluated."""
        return self.decider.evaluate(self.decider.lookup((wanted,), names, world, sent=sent))

    def happens(self, raw: Object, kind: EventType = EventType.MODIFIED) -> None:
        """An object comes, changes or goes."""
        self.state.apply(Event(kind, RESOURCES[raw["kind"]], raw))

    def takes(self, pool: str, device: str, *, share: str = "", size: str = "1Gi", uid: str = "uid-other") -> None:
        """A claim in flight gets a device; with a share, some memory of it."""
        found = DeviceResult("gpu", DeviceId(DRIVER, pool, device))
        if share:
            found = replace(found, share_id=share, consumed_capacity={"memory": Quantity.parse(size)})
        self.state.assume(uid, AllocationResult((found,)), "uid-pod")


def asked(*requests: Object, match: str = "", pod: str = "p") -> Claim:
    """A pod's claim; ``match`` is the attribute that its devices must have in common."""
    raw = claim(f"claim-of-{pod}", *requests)
    if match:
        raw["spec"]["devices"]["constraints"] = [{"matchAttribute": match}]
    return parse_claim(raw)


def pool_of(name: str, *devices: Object) -> Object:
    """A node's slice with devices that differ."""
    raw = local_slice(name, len(devices))
    raw["spec"]["devices"] = [{"name": f"gpu-{i}", **device} for i, device in enumerate(devices)]
    return raw


def texts(**values: str) -> Object:
    """A device with attributes of text."""
    return {"attributes": {name: {"string": value} for name, value in values.items()}}


def wants(count: int = 1, selector: str = "", cache: str = "", name: str = "gpu", **fields: Any) -> Object:
    """A request for a number of devices, or for an amount of memory of each."""
    raw = request(name, count=count, selectors=[selector] if selector else [])
    raw["exactly"] |= fields | ({"capacity": {"requests": {"memory": cache}}} if cache else {})
    return raw


def everything() -> Object:
    """A request for all devices."""
    raw = request()
    return raw | {"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}


def tolerates(**toleration: str) -> Object:
    """A request for one device, tainted or not."""
    return wants(tolerations=[toleration])


def named(raw: Object, name: str, *, slices: int = 1, **spec: Any) -> Object:
    """A slice under another name and with other fields; None takes one away."""
    fields = {**raw["spec"], "pool": {**raw["spec"]["pool"], "resourceSliceCount": slices}, **spec}
    kept = {key: value for key, value in fields.items() if value is not None}
    return raw | {"metadata": raw["metadata"] | {"name": name}, "spec": kept}


def zone(*names: str) -> Object:
    """For the nodes of zones, one term for each."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [name]}]} for name in names]
    return {"nodeSelector": {"nodeSelectorTerms": terms}}
