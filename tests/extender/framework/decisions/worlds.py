"""Clusters and claims at random, in which the features of devices meet."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from hypothesis import strategies as st

from allocator import AllocationResult, Claim, DeviceId, DeviceResult, Quantity, parse_claim
from allocator.model.optional import OPTIONAL_REQUESTS
from extender.cluster.cluster_state import ClusterState
from extender.kube.api import Event, EventType, RawObject
from extender.kube.resources import RESOURCES
from tests.extender.framework.decisions.scenes import zone
from tests.kit.clusters import DRIVER, GPU, claim, device_class, node, taint_rule

NODES = ("n0", "n1", "n2", "n3")
POOLS = (*NODES, "n0-more", "n1-more", "net", "zone-a", "zone-b")
DEVICES = ("gpu-0", "gpu-1", "gpu-2")
FEATURE = "DRAOptionalNodeOperations"
MODEL = f"device.attributes['{DRIVER}'].model"
ROOT = f"{DRIVER}/root"


HAS_MODEL = f"'model' in device.attributes['{DRIVER}']"
IS_X, IS_ONE = (f"{HAS_MODEL} && {MODEL} == {value}" for value in ('"x"', "1"))
READS_ALL = f"device.attributes['{DRIVER}'].exists(name, name == 'model') && {MODEL} == \"x\""
EXPRESSIONS = [None] * 6 + [HAS_MODEL, IS_X, IS_ONE] * 2 + [f'{MODEL} == "x"', READS_ALL, "device.nope"]


def some(values: Sequence[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def rarely(value: Any) -> st.SearchStrategy[Any]:
    """Mostly None."""
    return some([None, None, None, value])


# --- what a cluster consists of ----------------------------------------------------------------------------


def cluster_node(name: str, zone: str, *, declares: bool) -> RawObject:
    raw = node(name, labels={"zone": zone})
    if declares:
        raw["status"]["declaredFeatures"] = [FEATURE]
    return raw


FIRST_NODES = [cluster_node(name, zone, declares=name in "n1 n3") for name, zone in zip(NODES, "aabb", strict=True)]


def nodes() -> st.SearchStrategy[RawObject]:
    return st.builds(cluster_node, some(NODES), some("ab"), declares=st.booleans())


@st.composite
def devices(draw: st.DrawFn, name: str, *, counters: bool) -> RawObject:
    attributes: RawObject = {"uuid": {"string": f"POOL-{name}"}, "model": {"string": "x"}}
    attributes["root"] = {"string": draw(some(["r", "r", "s", "POOL", f"POOL-{name}"]))}
    found: RawObject = {"name": name, "attributes": attributes, "capacity": {"memory": {"value": "1Gi"}}}
    if counters:
        found["consumesCounters"] = [{"counterSet": "set-0", "counters": {"parts": {"value": "1"}}}]
    return found


TWISTS: tuple[RawObject, ...] = (
    *({"attributes": {"model": {kind: value}}} for kind, value in (("string", "y"), ("int", 1), ("bool", True))),
    *({"attributes": {"root": {"strings": list(letters)}}} for letters in ("rs", "st", "tu")),
    {"attributes": {"root": {"string": "s"}}},
    {"attributes": {"model": None}},
    {"attributes": {"root": None}},
    {"attributes": {"uuid": {"string": "another"}}},
    {"capacity": {"memory": {"value": "2Gi"}}},
    {"capacity": None},
    {"allowMultipleAllocations": True},
    *({"taints": [{"key": "sick", "value": value, "effect": "NoSchedule"}]} for value in ("very", "barely")),
    {"taints": [{"key": "sick", "value": "very", "effect": "None"}]},
    {"taints": [{"key": "hot", "value": "very", "effect": "NoSchedule"}]},
    {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]},
    {"consumesCounters": None},
    {"consumesCounters": [{"counterSet": "set-1", "counters": {"parts": {"value": "2"}}}]},
    {"nodeName": "n0", "allNodes": None},
)


def twisted(device: RawObject, twist: RawObject) -> RawObject:
    """A device with some fields replaced, or some attributes; None takes them away."""
    found = {**device, **twist}
    if "attributes" in twist:
        attributes = {**device["attributes"], **twist["attributes"]}
        found["attributes"] = {name: value for name, value in attributes.items() if value is not None}
    return {name: value for name, value in found.items() if value is not None}


SHARED: RawObject = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "2Gi"}}}


@dataclass(frozen=True)
class Model:
    """What the slices of a cluster have in common."""

    devices: tuple[RawObject, ...]
    counters: bool
    more: RawObject

    def slice(self, pool: str, *, twists: Sequence[tuple[int, RawObject]], more: RawObject, own: bool) -> RawObject:
        """A slice: with twists of some devices, and fields of its own; of each device its own place."""
        listed = list(self.devices)
        for index, twist in twists:
            if (own or "nodeName" not in twist) and index < len(listed):
                listed[index] = twisted(listed[index], twist)
        if own:
            listed = [{"allNodes": True, **each} if "nodeName" not in each else each for each in listed]
        spec: RawObject = {
            "driver": DRIVER,
            "devices": listed,
            **PLACES.get(pool, {"nodeName": pool}),
            **self.more,
            **more,
        }
        if own:
            spec = {**spec, "perDeviceNodeSelection": True}
            spec = {key: value for key, value in spec.items() if key not in {"allNodes", "nodeSelector", "nodeName"}}
        spec["pool"] = {"name": pool, "generation": 1, "resourceSliceCount": 2 if self.counters else 1}
        return _named(_resource_slice(f"slice-{pool}", spec), pool)

    def counter_slice(self, pool: str, value: str) -> RawObject:
        sets = [{"name": name, "counters": {"parts": {"value": value}}} for name in ("set-0", "set-1")]
        spec = {"driver": DRIVER, "sharedCounters": sets, **PLACES.get(pool, {"nodeName": pool})}
        spec["pool"] = {"name": pool, "generation": 1, "resourceSliceCount": 2}
        return _resource_slice(f"counters-{pool}", spec)


PLACES: dict[str, RawObject] = {
    "net": {"allNodes": True},
    "zone-a": zone("a"),
    "zone-b": zone("b"),
    "n0-more": {"nodeName": "n0"},
    "n1-more": {"nodeName": "n1"},
}

SKIPS: RawObject = {"skipNodeOperations": ["Prepare"]}


def _named(raw: RawObject, pool: str) -> RawObject:
    """With uuids and roots of its own."""
    return orjson.loads(orjson.dumps(raw).replace(b"POOL", pool.encode()))  # type: ignore[no-any-return]  # it was one


@st.composite
def slices(draw: st.DrawFn, model: Model, pools: Sequence[str]) -> RawObject:
    """A slice as all of the model, or with a difference or two."""
    pool = draw(some(pools))
    if model.counters and draw(rarely(value=True)):
        return model.counter_slice(pool, draw(some(["2", "3"])))
    twists = draw(st.lists(ONE_TWIST, max_size=2))
    more = draw(some([{}, {}, {}, {"driver": "other"}, SKIPS, zone("b", "c") if pool == "zone-b" else {}]))
    return model.slice(pool, twists=twists, more=more, own=pool == "net" and draw(st.booleans()))


ONE_TWIST = st.tuples(st.integers(0, 2), some(TWISTS))


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Often with twists that all slices have in common, so that another one makes a small difference."""
    counters = draw(rarely(value=True)) is not None
    listed = [draw(devices(name, counters=counters)) for name in DEVICES]
    common = draw(some([{}, SHARED, SHARED, *(twist for twist in TWISTS if "nodeName" not in twist)]))
    return Model(tuple(twisted(each, common) for each in listed), counters, draw(some([{}, {}, {}, SKIPS])))


@st.composite
def beginnings(draw: st.DrawFn, model: Model) -> list[RawObject]:
    """Slices for all nodes, mostly alike but for one thing, and now and then more of them; devices that are held."""
    pools = draw(some([NODES, NODES, (*NODES, "net"), (*NODES, "n0-more", "n1-more"), ("zone-a", "zone-b")]))
    counters = [model.counter_slice(pool, "2") for pool in pools] if model.counters else []
    twists = {pool: draw(st.lists(ONE_TWIST, max_size=1)) for pool in pools}
    alike = [model.slice(pool, twists=twists[pool], more={}, own=False) for pool in pools]
    held = [(pool, draw(some([None, *DEVICES]))) for pool in pools]
    claims = [claim(f"of-{pool}", allocated=[f"{pool}/{device}"]) for pool, device in held if device is not None]
    return [*counters, *alike, *draw(st.lists(slices(model, pools), max_size=1)), *claims]


def _resource_slice(name: str, spec: RawObject) -> RawObject:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


HOLDINGS = st.lists(st.tuples(some(POOLS), some(DEVICES)).map("/".join), min_size=1, max_size=2, unique=True)
CLASSES = st.builds(
    device_class, st.just("gpu"), selectors=some([[f'device.driver == "{DRIVER}"'], [f'{MODEL} == "x"']])
)
RULES = st.one_of(
    st.builds(taint_rule, st.just("of-driver"), driver=some([DRIVER, "other"])),
    st.builds(taint_rule, st.just("of-device"), driver=st.just(DRIVER), pool=some(POOLS), device=some(DEVICES)),
)


def objects(model: Model) -> st.SearchStrategy[RawObject]:
    """What may come, change or go."""
    claims = st.builds(claim, some("cdefg"), allocated=HOLDINGS)
    return st.one_of(nodes(), slices(model, POOLS), slices(model, NODES), CLASSES, RULES, claims, claims)


# --- what is asked for ---------------------------------------------------------------------------------------


@st.composite
def requests(draw: st.DrawFn, name: str) -> RawObject:
    exactly = draw(alternatives())
    if draw(rarely(value=True)):
        both = [exactly | {"name": "one"}, draw(alternatives()) | {"name": "two"}]
        return {"name": name, "firstAvailable": both}
    return {"name": name, "exactly": exactly | {"adminAccess": draw(rarely(value=True)) is not None}}


TOLERATIONS = (
    {"operator": "Exists"},
    {"key": "sick", "operator": "Exists"},
    {"key": "sick", "operator": "Equal", "value": "very"},
)


@st.composite
def alternatives(draw: st.DrawFn) -> RawObject:
    found: RawObject = {"deviceClassName": "gpu"}
    whole = draw(st.integers(0, 5)) == 5
    found |= {"allocationMode": "All"} if whole else {"allocationMode": "ExactCount", "count": draw(some([1, 1, 2, 3]))}
    expression = draw(some(EXPRESSIONS))
    if expression is not None:
        found["selectors"] = [{"cel": {"expression": expression}}]
    if draw(rarely(value=True)):
        found["tolerations"] = [draw(some(TOLERATIONS))]
    if draw(rarely(value=True)):
        found["capacity"] = {"requests": {"memory": "1Gi"}}
    return found


@st.composite
def wishes(draw: st.DrawFn) -> tuple[Claim, ...]:
    """The claims of a pod, which share a shape with other wishes now and then."""
    raws = []
    for number in range(draw(some([1, 1, 2]))):
        names = [f"r{i}" for i in range(draw(some([1, 1, 2])))]
        raw = claim(f"{draw(some(['p', 'q']))}-{number}", *[draw(requests(name)) for name in names])
        kind = draw(some([None, "matchAttribute", "distinctAttribute"]))
        if kind is not None:
            raw["spec"]["devices"]["constraints"] = [{kind: ROOT}]
        if draw(rarely(value=True)):
            raw["metadata"]["annotations"] = {OPTIONAL_REQUESTS: draw(some(["r0", "r1,r0", names[-1]]))}
        raws.append(parse_claim(raw))
    return tuple(raws)


EXAMPLES = int(os.environ.get("DECIDING_EXAMPLES", "300"))


# --- histories -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Happens:
    """An object is put there, or taken away if it is there."""

    raw: RawObject
    gone: bool


@dataclass(frozen=True)
class Flies:
    """An allocation of a claim in flight begins or ends."""

    uid: str
    pool: str
    device: str
    shared: bool
    ends: bool


@dataclass(frozen=True)
class Asks:
    """A pod comes; in a fork, a device is held besides."""

    wish: int
    names: tuple[str, ...]
    held: tuple[str, str] | None


FLIGHTS = st.builds(Flies, some(["uid-c", "uid-f"]), some(POOLS), some(DEVICES), st.booleans(), st.booleans())
QUESTIONS = st.builds(
    Asks,
    st.integers(0, 2),
    st.permutations([*NODES, "nobody"]).map(tuple),
    some([None, None, ("n0", "gpu-0"), ("n1", "gpu-0"), ("net", "gpu-1")]),
)


@dataclass(frozen=True)
class History:
    """A cluster: what there is at first, and what happens then."""

    beginning: list[RawObject]
    steps: list[Happens | Flies | Asks]


@st.composite
def histories(draw: st.DrawFn) -> History:
    model = draw(models())
    happenings = st.builds(Happens, objects(model), some([False, False, False, True]))
    steps = st.lists(st.one_of(happenings, FLIGHTS, QUESTIONS, QUESTIONS), min_size=5, max_size=30)
    return History(draw(beginnings(model)), draw(steps))


def result(pool: str, device: str, *, shared: bool = False, holder: str = "") -> AllocationResult:
    found = DeviceResult("r0", DeviceId(DRIVER, pool, device))
    if shared:
        found = replace(found, share_id=f"share-{holder}", consumed_capacity={"memory": Quantity.parse("1Gi")})
    return AllocationResult((found,))


def play(state: ClusterState, step: Happens | Flies, number: int) -> None:
    if isinstance(step, Flies):
        if step.ends:
            state.forget(step.uid)
        else:
            state.assume(step.uid, result(step.pool, step.device, shared=step.shared, holder=step.uid), "uid-pod")
        return
    raw = step.raw | {"metadata": step.raw["metadata"] | {"resourceVersion": str(number + 2)}}
    state.apply(Event(EventType.DELETED if step.gone else EventType.MODIFIED, RESOURCES[raw["kind"]], raw))


def synced(beginning: Sequence[RawObject]) -> ClusterState:
    state = ClusterState(log_size=5)
    for resource in RESOURCES.values():
        state.replace(resource, [], 0)
    for raw in (GPU, *FIRST_NODES, *beginning):
        state.apply(Event(EventType.ADDED, RESOURCES[raw["kind"]], raw))
    return state
