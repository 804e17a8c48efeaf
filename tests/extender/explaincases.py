"""Every cause that keeps a pod from its nodes, each in a cluster of its own; in the order of explanations.txt."""

from collections.abc import Mapping
from dataclasses import replace

from allocator import BEST_FIT, Limits
from allocator.model.features import ALL_FEATURES
from tests.extender.explaining import (
    BROKEN,
    EXTENDED,
    MEMORY,
    MODEL,
    NODE_OPERATIONS,
    PARTITIONS,
    SAME_ROOT,
    SHARED,
    SHARED_MEMORY,
    VERSION,
    Case,
    asking,
    being_allocated,
    consuming,
    featured,
    gated,
    gpu,
    gpus,
    held,
    made_claim,
    near,
    partition,
    pool,
    reserved_for_experiment,
    root,
    selecting,
    shared_claim,
    tainted,
    templated,
    two_gpus,
    unschedulable,
    versioned,
    with_fields,
)
from tests.kit.clusters import (
    CREATED,
    DRIVER,
    GPU,
    claim,
    claim_template,
    device_class,
    node,
    pod,
    request,
    solver,
    taint_rule,
)

EXPLAINED: Mapping[str, Case] = {
    # of devices
    "in use": Case((*asking(), *two_gpus("a"), node("b"), *held("x", "a/gpu-0"), *held("y", "a/gpu-1"))),
    "in use by a claim without a pod": Case(
        (*asking(), node("a"), pool("a", *gpus(1)), claim("kept", allocated=["a/gpu-0"], at="a"))
    ),
    "in use by a claim without the finalizer": Case(
        (
            *asking(),
            node("a"),
            pool("a", *gpus(1)),
            claim("kept", allocated=["a/gpu-0"], at="a", users=["x"]),
            pod("x", "kept", on="a"),
        )
    ),
    "in use by something that is no pod": Case(
        (*asking(), node("a"), pool("a", *gpus(1)), reserved_for_experiment("a/gpu-0"))
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
    "a value in another case": Case(
        (
            *asking(request(selectors=[f'{MODEL} in ["Flex-h100", "flex-A100"]'])),
            node("a"),
            pool("a", *gpus(1, model="Flex-A100")),
        )
    ),
    "a version that is too new": Case(
        (
            *asking(request(selectors=[f'{VERSION}.isGreaterThan(semver("3.0.0"))'])),
            node("a"),
            pool("a", gpu("gpu-0", **versioned("1.9.0")), gpu("gpu-1", **versioned("2.5.0"))),
        )
    ),
    "profiles that there are": Case(
        (
            *asking(request(selectors=[f'{MODEL} == "3g.20gb"'])),
            node("a"),
            pool("a", *(gpu(f"gpu-{n}", f"{n}g.{5 * n}gb") for n in (1, 2, 7))),
        )
    ),
    "more devices of a kind than there are": Case(
        (
            *asking(request(count=2, selectors=[f'{MODEL} == "h100"'])),
            node("a"),
            pool("a", gpu("gpu-0", "a100"), gpu("gpu-1", "v100")),
        )
    ),
    "two requests that are spelt otherwise": Case(
        (
            *asking(*(request(name, selectors=[f'{MODEL} == "A-100"']) for name in ("one", "two"))),
            *two_gpus("a"),
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
    "less of two capacities": Case(
        (
            *asking(with_fields(request(), capacity={"requests": {"bandwidth": "11G", "memory": "80Gi"}})),
            node("a"),
            pool("a", {"name": "gpu-0", **SHARED_MEMORY}),
        )
    ),
    "a share, where the request names no amount": Case(
        (*asking(), node("a"), pool("a", {"name": "gpu-0", **SHARED}), *consuming("x", "7G"))
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
            *PARTITIONS,
            pool("a", partition("whole", 40), resourceSliceCount=2),
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
        (*asking(), node("a"), pool("a", *gpus(1), spec=NODE_OPERATIONS)),
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
            GPU,
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
    "no such class, and another of its shape": Case(
        (device_class("a100"), *asking(request(device_class="h100"))[1:], node("a"), pool("a", *gpus(1)))
    ),
    "no such claim": Case((GPU, node("a"), pool("a", *gpus(1)), claim("mine-1"), pod("p", "mine"))),
    "no such claim, and nothing like it": Case((GPU, node("a"), pod("p", "mine"))),
    "a template's name for a claim": Case(
        (GPU, node("a"), pool("a", *gpus(1)), claim_template("mine"), pod("p", "mine"))
    ),
    "no such template": Case((GPU, node("a"), pool("a", *gpus(1)), claim_template("gpu-1"), templated("gpu-2"))),
    "a claim that is not yet made": Case((GPU, node("a"), pool("a", *gpus(1)), claim_template("gpu"), templated())),
    "a claim that is not yet made, and does not fit": Case((GPU, node("a"), claim_template("gpu"), templated())),
    "a claim that is made, and asks for too much": Case(
        (GPU, *two_gpus("a"), claim_template("gpu", request(count=3)), templated(made=True), made_claim(count=3))
    ),
    "a claim of another pod": Case((GPU, node("a"), pool("a", *gpus(1)), claim("mine"), templated(made=True))),
    "a claim that is being deleted": Case(
        (GPU, *two_gpus("a"), claim("mine", metadata={"deletionTimestamp": CREATED}), pod("p", "mine"))
    ),
    "a claim that is being allocated for another pod": Case(
        (GPU, *two_gpus("a"), *held("other", "a/gpu-0"), pod("p", "other-gpu")), change=being_allocated
    ),
    "a claim with too many pods": Case((GPU, node("a"), pool("a", *gpus(1)), shared_claim(256), pod("p", "mine"))),
    "a claim that is allocated elsewhere": Case(
        (GPU, node("b"), pool("b", *gpus(1)), claim("mine", allocated=["a/gpu-0"], at="a"), pod("p", "mine"))
    ),
    "extended resources": Case((*EXTENDED, *two_gpus("a"), *held("x", "a/gpu-0"), *held("y", "a/gpu-1"))),
    "extended resources that device plugins serve, too": Case(
        (*EXTENDED, node("a", allocatable={"example.com/gpu": "1"}), node("b"))
    ),
    "an extended resource that nothing offers": Case(
        (GPU, node("a"), pod("p", resources={"example.com/other": "1"}))
    ),
    "an extended resource whose name is misspelt": Case(
        (device_class(extended="example.com/gpu"), node("a"), pod("p", resources={"example.com/gpus": "1"}))
    ),
    "a resource of which device plugins have too little left": Case(
        (
            *(node(name, allocatable={"example.com/gpu": "1"}) for name in ("a", "b")),
            pod("x", on="a", resources={"example.com/gpu": "1"}),
            pod("p", resources={"example.com/gpu": "1"}),
        )
    ),
    # of pods on nodes
    "bound without its claims": Case(
        (
            GPU,
            node("a"),
            pool("a", *gpus(1)),
            node("b"),
            pool("b", *gpus(1)),
            claim("free"),
            claim("held", allocated=["a/gpu-0"], at="a"),
            claim("elsewhere", allocated=["b/gpu-0"], at="b"),
            pod("p", "free", "held", "elsewhere", "gone", on="a"),
        )
    ),
    # of kube-scheduler
    "a cordoned node": Case((*asking(), node("a"), unschedulable(node("b")), pool("b", *gpus(2)))),
    "nodes that the scheduler rejects, and one where the pod fits": Case(
        (
            *asking(),
            *two_gpus("a"),
            node("b"),
            *(each for name in ("c", "d") for each in (tainted(node(name)), pool(name, *gpus(1)))),
            unschedulable(node("e")),
            unschedulable(tainted(node("f"))),
            pool("f", *gpus(1)),
        )
    ),
    "a node selector": Case(
        (
            *asking()[:2],
            selecting({"zone": "1"}),
            *two_gpus("a"),
            node("b", labels={"zone": "1"}),
            pool("b", gpu("gpu-0", **BROKEN)),
        )
    ),
    "one node that the scheduler rejects": Case((*asking(), tainted(node("a")), pool("a", *gpus(1)))),
    "a node with other devices that the scheduler rejects": Case(
        (*asking(request(selectors=[f'{MODEL} == "h100"'])), tainted(node("a")), pool("a", *gpus(1)), node("b"))
    ),
    "a required affinity": Case((*asking()[:2], near("b"), *two_gpus("a"), node("b"))),
    "scheduling gates": Case((*asking()[:2], gated("example.com/quota", "example.com/topology"), *two_gpus("a"))),
    "conditions that are not modeled": Case(
        (*asking()[:2], pod("p", "mine", resources={"cpu": "1"}), *two_gpus("a"))
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
    "bound": Case((GPU, *two_gpus("a"), *held("p", "a/gpu-0"))),
}  # fmt: skip
