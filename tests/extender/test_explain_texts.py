"""Every cause in words: what `explain` prints, word for word, is in explanations.txt beside this file.

A section of that file is the explanation of the pod ns/p in the cluster of the same name here.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import orjson
import pytest

from allocator.effort import Limits
from allocator.features import ALL_FEATURES, Features
from allocator.outcome import Cause
from allocator.policy import BEST_FIT
from extender.cluster.api import ObjectKey
from extender.cluster.snapshot import InFlight, Snapshot
from extender.explain.changes import combined
from extender.explain.document import as_json
from extender.explain.explaining import Explainer
from extender.explain.explanation import Explanation
from extender.explain.references import with_claims_made
from extender.explain.text import as_text
from extender.solver import Solver
from extender.verbs.filter import filter_nodes
from tests.extender.clusters import (
    CREATED,
    DRIVER,
    Object,
    claim,
    device_class,
    node,
    pod,
    request,
    snapshot_of,
    solver,
    taint_rule,
)

GOLDEN = (Path(__file__).parent / "explanations.txt").read_text()
CLASS = device_class(selectors=[f'device.driver == "{DRIVER}"'])
MODEL = f'device.attributes["{DRIVER}"].model'
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
    at: str, *devices: Object, counters: Object | None = None, spec: Object | None = None, **fields: Any
) -> Object:
    """The slice of a node, whose devices are its pool."""
    published: Object = {"sharedCounters": [{"name": "silicon", "counters": counters}]} if counters else {}
    whole: Object = {
        "driver": DRIVER,
        "nodeName": at,
        "pool": {"name": at, "generation": 1, "resourceSliceCount": 1, **fields},
        **(published or {"devices": list(devices)}),
        **(spec or {}),
    }
    suffix = "-counters" if counters else ""
    metadata = {"name": f"slice-{at}{suffix}", "uid": f"uid-slice-{at}{suffix}", "creationTimestamp": CREATED}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": whole}


def gpu(name: str, model: str = "a100", memory: str = "40Gi", **fields: Any) -> Object:
    attributes = {"model": {"string": model}, **fields.pop("attributes", {})}
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}, **fields}


def gpus(count: int, **fields: Any) -> list[Object]:
    return [gpu(f"gpu-{number}", **fields) for number in range(count)]


def two_gpus(at: str, **fields: Any) -> tuple[Object, Object]:
    """A node with two devices."""
    return node(at), pool(at, *gpus(2, **fields))


def asking(*requests: Object, constraints: tuple[Object, ...] = ()) -> tuple[Object, ...]:
    """The pod and its claim."""
    mine = claim("mine", *requests)
    if constraints:
        mine["spec"]["devices"]["constraints"] = list(constraints)
    return (CLASS, mine, pod("p", "mine"))


def held(name: str, *devices: str, at: str = "a", priority: int = 0) -> tuple[Object, Object]:
    """A running pod, and the claim that it uses."""
    user = pod(name, f"{name}-gpu", on=at, priority=priority)
    return user, claim(f"{name}-gpu", allocated=devices, at=at, users=[name])


def with_fields(wanted: Object, **fields: Any) -> Object:
    return {**wanted, "exactly": {**wanted["exactly"], **fields}}


def templated(template: str = "gpu", made: bool = False) -> Object:
    """The pod, with a claim that is made from a template."""
    found = pod("p")
    found["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    if made:
        found["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "mine"}]
    return found


def template(name: str, *requests: Object) -> Object:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "creationTimestamp": CREATED}
    spec = {"spec": {"devices": {"requests": list(requests) or [request()]}}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def featured(**features: bool) -> Solver:
    return replace(solver(), features=replace(Features(), **features))


def being_allocated(snapshot: Snapshot) -> Snapshot:
    """The other pod's claim is decided, and not written yet."""
    other = snapshot.claims[ObjectKey("ns", "other-gpu")].claim
    assert other.allocation is not None
    freed = replace(
        snapshot.claims[ObjectKey("ns", "other-gpu")], claim=replace(other, allocation=None, reserved_for=())
    )
    return snapshot.with_claim(freed).assuming(InFlight(other.uid, "uid-other", other.allocation))


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
    """A running pod with a share of a device."""
    user, own = held(name, device)
    result = own["status"]["allocation"]["devices"]["results"][0]
    share = str(uuid5(NAMESPACE_URL, name))
    result |= {"shareID": share, "consumedCapacity": {"bandwidth": bandwidth, **more}}
    return user, own


def root(name: str) -> Object:
    return {"attributes": {"root": {"string": name}}}


EXTENDED = (device_class(extended="example.com/gpu"), pod("p", resources={"example.com/gpu": "1"}))
SAME_ROOT = {"matchAttribute": f"{DRIVER}/root"}
BROKEN: Object = {"taints": [{"key": "example.com/broken", "value": "fan", "effect": "NoSchedule"}]}

NOT_OF_DEVICES = {Cause.CONSTRAINT, Cause.COUNT, Cause.POOL, Cause.RESULTS}
"""What is told of requests and pools."""

CASES: Mapping[str, Case] = {
    # of devices
    "in use": Case((*asking(), *two_gpus("a"), node("b"), *held("x", "a/gpu-0"), *held("y", "a/gpu-1"))),
    "in use by a claim without a pod": Case(
        (*asking(), node("a"), pool("a", *gpus(1)), claim("kept", allocated=["a/gpu-0"], at="a"))
    ),
    "in use by a claim that is being allocated": Case(
        (*asking(), node("a"), pool("a", *gpus(1)), *held("other", "a/gpu-0")), change=being_allocated
    ),
    "kept for a nominated pod": Case(
        (*asking(), node("a"), pool("a", *gpus(1)), claim("theirs"), pod("first", "theirs", nominated="a", priority=9))
    ),
    "another model": Case(
        (
            *asking(request(selectors=[f'{MODEL} == "h100"'])),
            *two_gpus("a"),
            node("b"),
            pool("b", *gpus(2), gpu("gpu-2", "v100")),
        )
    ),
    "one condition of several": Case(
        (
            *asking(request(selectors=[f'{MODEL} == "a100" && {MEMORY}.compareTo(quantity("80Gi")) >= 0'])),
            node("a"),
            pool("a", *gpus(1), gpu("gpu-1", "v100", "80Gi")),
        )
    ),
    "a class's selector": Case(
        (
            device_class(selectors=[f'device.driver == "{DRIVER}"', 'device.driver == "other.example.com"']),
            *asking()[1:],
            node("a"),
            pool("a", *gpus(1)),
        )
    ),
    "an attribute that is spelt otherwise": Case(
        (*asking(request(selectors=[f'device.attributes["{DRIVER}"].modle == "a100"'])), node("a"), pool("a", *gpus(1)))
    ),
    "an attribute of another domain": Case(
        (*asking(request(selectors=['device.attributes["example.com"].model == "a100"'])), *two_gpus("a"))
    ),
    "an attribute that nobody knows": Case(
        (*asking(request(selectors=[f'device.attributes["{DRIVER}"].colour == "red"'])), node("a"), pool("a", *gpus(1)))
    ),
    "an expression that fails": Case(
        (*asking(request(selectors=[f"{MODEL} > 3"])), node("a"), pool("a", *gpus(1)))
    ),
    "an expression that does not compile": Case(
        (*asking(request(selectors=[f"{MODEL} == "])), node("a"), pool("a", *gpus(1)))
    ),
    "tainted by its driver": Case((*asking(), node("a"), pool("a", gpu("gpu-0", **BROKEN)))),
    "tainted by a rule": Case((*asking(), node("a"), pool("a", *gpus(1)), taint_rule("maintenance", pool="a"))),
    "in use and tainted": Case((*asking(), node("a"), pool("a", gpu("gpu-0", **BROKEN)), *held("x", "a/gpu-0"))),
    "not enough capacity": Case(
        (*asking(with_fields(request(), capacity={"requests": {"memory": "80Gi"}})), node("a"), pool("a", *gpus(2)))
    ),
    "no such capacity": Case(
        (*asking(with_fields(request(), capacity={"requests": {"memroy": "20Gi"}})), node("a"), pool("a", *gpus(1)))
    ),
    "too little left of a shared device": Case(
        (
            *asking(with_fields(request(), capacity={"requests": {"bandwidth": "6G"}})),
            node("a"),
            pool("a", {"name": "gpu-0", **SHARED}),
            *consuming("x", "7G"),
        )
    ),
    "too little left of shared devices": Case(
        (
            *asking(with_fields(request(), capacity={"requests": {"bandwidth": "6G", "memory": "1Gi"}})),
            node("a"),
            pool("a", *({"name": f"gpu-{n}", **SHARED_MEMORY} for n in range(2)), {**SHARED, "name": "gpu-2"}),
            *(each for n in range(1, 8) for each in consuming(f"x{n}", f"{n * 250}M", memory="1Gi")),
            *(each for n in range(2) for each in consuming(f"y{n}", "4G", "a/gpu-1", memory="2Gi")),
            *consuming("z", "10G", "a/gpu-2"),
        )
    ),
    "a share that is kept for a nominated pod": Case(
        (
            *asking(with_fields(request(), capacity={"requests": {"bandwidth": "6G"}})),
            node("a"),
            pool("a", {"name": "gpu-0", **SHARED}),
            *consuming("x", "1G"),
            claim("theirs", with_fields(request(), capacity={"requests": {"bandwidth": "7G"}})),
            pod("first", "theirs", nominated="a", priority=9),
        )
    ),
    "an amount that the policy forbids": Case(
        (
            *asking(with_fields(request(), capacity={"requests": {"bandwidth": "8G"}})),
            node("a"),
            pool(
                "a",
                {
                    "name": "gpu-0",
                    "allowMultipleAllocations": True,
                    "capacity": {
                        "bandwidth": {
                            "value": "10G",
                            "requestPolicy": {"default": "1G", "validValues": ["1G", "2G", "4G"]},
                        }
                    },
                },
            ),
        )
    ),
    "shared counters used up": Case(
        (
            *asking(),
            node("a"),
            *PARTITIONS,
            pool("a", partition("whole", 40), partition("half", 20), resourceSliceCount=2),
            *held("x", "a/half"),
        )
    ),
    "not compatible": Case(
        (
            *asking(request(selectors=[f'"big" in device.attributes["{DRIVER}"]'])),
            node("a"),
            *PARTITIONS,
            pool(
                "a",
                {**partition("whole", 10, compatibilityGroups=["one"]), "attributes": {"big": {"bool": True}}},
                partition("half", 10, compatibilityGroups=["two"]),
                resourceSliceCount=2,
            ),
            *held("x", "a/half"),
        ),
        solver=replace(solver(), features=ALL_FEATURES),
    ),
    "shared counters are off": Case(
        (
            *asking(),
            node("a"),
            pool("a", partition("whole", 40)),
        ),
        solver=featured(partitionable_devices=False),
    ),
    "binding conditions are off": Case(
        (
            *asking(),
            node("a"),
            pool("a", gpu("gpu-0", bindingConditions=["attached"], bindingFailureConditions=["failed"])),
        ),
        solver=featured(binding_conditions=False),
    ),
    "a feature that the node does not declare": Case(
        (*asking(), node("a"), pool("a", *gpus(1), spec={"skipNodeOperations": ["NodePrepareResources"]})),
        solver=featured(optional_node_operations=True),
    ),
    "not reachable": Case(
        (
            *asking(),
            node("a"),
            {
                **(there := pool("a")),
                "spec": {
                    "driver": DRIVER,
                    "perDeviceNodeSelection": True,
                    "pool": there["spec"]["pool"],
                    "devices": [gpu("gpu-0", nodeName="b"), gpu("gpu-1", nodeName="a")],
                },
            },
            *held("x", "a/gpu-1"),
        )
    ),
    # of requests and claims
    "too few on every node": Case(
        (*asking(request(count=3)), *two_gpus("a"), *two_gpus("b"))
    ),
    "several pods in the way": Case(
        (
            *asking(request(count=2)),
            node("a"),
            pool("a", *gpus(4)),
            *(each for n in range(4) for each in held(f"x{n}", f"a/gpu-{n}", priority=10 - n)),
        )
    ),
    "no common value": Case(
        (
            *asking(request(count=2), constraints=(SAME_ROOT,)),
            node("a"),
            pool("a", gpu("gpu-0", **root("left")), gpu("gpu-1", **root("right"))),
        )
    ),
    "all values are the same": Case(
        (
            *asking(request(count=2), constraints=({"distinctAttribute": f"{DRIVER}/root"},)),
            node("a"),
            pool("a", *gpus(2, **root("left"))),
        )
    ),
    "a constraint on an attribute that is spelt otherwise": Case(
        (
            *asking(request(count=2), constraints=({"matchAttribute": f"{DRIVER}/rooot"},)),
            node("a"),
            pool("a", *gpus(2, **root("left"))),
        )
    ),
    "requests that compete": Case((*asking(request("one"), request("two")), node("a"), pool("a", *gpus(1)))),
    "alternatives": Case(
        (
            CLASS,
            claim(
                "mine",
                {
                    "name": "gpu",
                    "firstAvailable": [
                        {"name": name, **request(selectors=[f'{MODEL} == "{name}"'])["exactly"]}
                        for name in ("h100", "a100")
                    ],
                },
            ),
            pod("p", "mine"),
            node("a"),
            pool("a", *gpus(1)),
            *held("x", "a/gpu-0"),
        )
    ),
    "all devices, one of them in use": Case(
        (*asking(with_fields(request(), allocationMode="All", count=0)), *two_gpus("a"), *held("x", "a/gpu-0"))
    ),
    "more than a claim can hold": Case((*asking(request(count=40)), node("a"), pool("a", *gpus(40)))),
    "an incomplete pool": Case((*asking(), node("a"), pool("a", *gpus(2), resourceSliceCount=3))),
    "an invalid pool": Case((*asking(), node("a"), pool("a", *gpus(1), *gpus(1)))),
    "search limit": Case(
        (
            *asking(*(request(f"r{n}", count=2) for n in range(3)), constraints=(SAME_ROOT,)),
            node("a"),
            pool("a", *(gpu(f"gpu-{n}", **root(str(n % 4))) for n in range(12))),
        ),
        solver=solver(limits=Limits(steps=3)),
    ),
    # of the pod as a whole
    "no such class": Case((*asking(request(device_class="gpus")), node("a"), pool("a", *gpus(1)))),
    "no such claim": Case((CLASS, node("a"), pool("a", *gpus(1)), claim("mine-1"), pod("p", "mine"))),
    "no such claim, and nothing like it": Case((CLASS, node("a"), pod("p", "mine"))),
    "a template's name for a claim": Case((CLASS, node("a"), pool("a", *gpus(1)), template("mine"), pod("p", "mine"))),
    "no such template": Case((CLASS, node("a"), pool("a", *gpus(1)), template("gpu-1"), templated("gpu-2"))),
    "a claim that is not yet made": Case((CLASS, node("a"), pool("a", *gpus(1)), template("gpu"), templated())),
    "a claim that is not yet made, and does not fit": Case((CLASS, node("a"), template("gpu"), templated())),
    "a claim of another pod": Case((CLASS, node("a"), pool("a", *gpus(1)), claim("mine"), templated(made=True))),
    "a claim that is being deleted": Case(
        (CLASS, *two_gpus("a"), claim("mine", metadata={"deletionTimestamp": CREATED}), pod("p", "mine"))
    ),
    "a claim that is being allocated for another pod": Case(
        (CLASS, *two_gpus("a"), *held("other", "a/gpu-0"), pod("p", "other-gpu")), change=being_allocated
    ),
    "a claim with too many pods": Case((CLASS, node("a"), pool("a", *gpus(1)), shared_claim(256), pod("p", "mine"))),
    "a claim that is allocated elsewhere": Case(
        (CLASS, node("b"), pool("b", *gpus(1)), claim("mine", allocated=["a/gpu-0"], at="a"), pod("p", "mine"))
    ),
    "extended resources": Case((*EXTENDED, *two_gpus("a"), *held("x", "a/gpu-0"), *held("y", "a/gpu-1"))),
    "extended resources that device plugins serve, too": Case(
        (*EXTENDED, node("a", allocatable={"example.com/gpu": "1"}), node("b"))
    ),
    "an extended resource that nothing offers": Case(
        (CLASS, node("a"), pod("p", resources={"example.com/other": "1"}))
    ),
    "an unknown node": Case((*asking(), node("worker-1"), pool("worker-1", *gpus(1))), nodes=("worker1",)),
    "no nodes": Case(asking()),
    "one node": Case(
        (*asking(), node("a"), pool("a", *gpus(1)), node("b"), pool("b", *gpus(1)), *held("x", "a/gpu-0")), nodes=("a",)
    ),
    # of pods that are well
    "fits": Case(
        (
            *asking(),
            *two_gpus("a", memory="80Gi"),
            *two_gpus("b"),
            node("c"),
        ),
        solver=replace(solver(), policy=BEST_FIT),
    ),
    "fits, by another policy": Case((*asking(), node("a"), pool("a", *gpus(1)))),
    "bound": Case((CLASS, *two_gpus("a"), *held("p", "a/gpu-0"))),
}  # fmt: skip


def sections() -> dict[str, str]:
    parts = re.split(r"^=== (.*)\n", GOLDEN, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (text.strip("\n") + "\n" for text in parts[2::2]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_text(name: str) -> None:
    assert as_text(CASES[name].explained()) == sections()[name]


@pytest.mark.parametrize("name", CASES)
def test_each_proposal_makes_the_pod_fit(name: str) -> None:
    case, key = CASES[name], ObjectKey("ns", "p")
    snapshot = case.change(snapshot_of(*case.objects))
    snapshot, _ = with_claims_made(snapshot.pods[key], snapshot)
    for proposal in case.explained().proposals:
        after = combined(proposal.changes)(snapshot)
        after, _ = with_claims_made(after.pods[key], after)
        enough = replace(case.solver, limits=Limits())
        assert filter_nodes(after.pods[key], [proposal.node], after, enough).passed == (proposal.node,)


def test_every_text_has_its_cluster() -> None:
    assert list(sections()) == list(CASES)


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause not in NOT_OF_DEVICES], ids=lambda c: c.name)
def test_every_cause_has_a_text(cause: Cause) -> None:
    reports = [report for case in CASES.values() for report in case.explained().requests]
    assert any(fallout.obstacle.cause is cause for report in reports for fallout in report.fallouts)


@pytest.mark.parametrize("name", CASES)
def test_json_says_what_the_text_says(name: str) -> None:
    found = CASES[name].explained()
    document = orjson.loads(orjson.dumps(as_json(found)))
    text = as_text(found)
    said = [document["summary"].partition(": ")[0], *document["notes"]]
    said += [fallout["text"] for report in document["requests"] for fallout in report["fallouts"]]
    said += [change["how"] for proposal in document["proposals"] for change in proposal["changes"] if change["how"]]
    assert [each for each in said if each not in text] == []


def test_json_has_shares_by_capacity() -> None:
    (report,) = orjson.loads(orjson.dumps(as_json(CASES["too little left of shared devices"].explained())))["requests"]
    shared, _ = report["fallouts"]
    assert shared["need"] == "6G"
    shares = [(each["device"]["device"], each["claim"], each["consumedCapacity"]) for each in shared["holders"]]
    assert [claim for _, claim, _ in shares] == [*(f"ns/x{n}-gpu" for n in range(7, 0, -1)), "ns/y0-gpu", "ns/y1-gpu"]
    assert shares[0] == ("gpu-0", "ns/x7-gpu", {"bandwidth": "1750M", "memory": "1Gi"})
    (report,) = orjson.loads(orjson.dumps(as_json(CASES["in use"].explained())))["requests"]
    assert [each["consumedCapacity"] for each in report["fallouts"][0]["holders"]] == [None, None]


@pytest.mark.parametrize("name", CASES)
def test_names_are_those_of_what_exists(name: str) -> None:
    """Every device, claim and pod that a text names is in the cluster; what is to be added has no name."""
    snapshot = CASES[name].change(snapshot_of(*CASES[name].objects))
    text = as_text(CASES[name].explained())
    devices = {str(d.id) for s in snapshot.inventory.slices.values() for d in s.devices} | {f"{DRIVER}/a/gpu-0"}
    named = set(re.findall(rf"\b{DRIVER}/[a-z0-9-]+/[a-z0-9-]+", text))
    assert named <= devices
    assert set(re.findall(r"\bpod (ns/[a-z0-9-]+)", text)) <= {str(key) for key in snapshot.pods}
