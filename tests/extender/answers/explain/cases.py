"""Every cause that keeps a pod from its nodes, each in a cluster of its own; in the order of explanations.txt."""

from collections.abc import Mapping
from dataclasses import replace

from allocator.policies import BEST_FIT
from tests.extender.answers.explain.claim_cases import OF_CLAIMS
from tests.extender.answers.explain.device_cases import OF_DEVICES
from tests.extender.answers.explain.scenes import (
    BROKEN,
    EXTENDED,
    MODEL,
    SHARED,
    Case,
    being_allocated,
    gated,
    gpu,
    gpus,
    held,
    made_claim,
    near,
    pool,
    selecting,
    shared_claim,
    tainted,
    templated,
    two_gpus,
    unschedulable,
    wants,
    weighing,
    with_fields,
)
from tests.kit.clusters import CREATED, GPU, claim, claim_template, device_class, node, pod, request, solver

EXPLAINED: Mapping[str, Case] = {
    **OF_DEVICES,
    **OF_CLAIMS,
    # of the pod as a whole
    "no such class": Case((*wants(request(device_class="gpus")), node("a"), pool("a", *gpus(1)))),
    "no such class, and another of its shape": Case(
        (device_class("a100"), *wants(request(device_class="h100"))[1:], node("a"), pool("a", *gpus(1)))
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
    "more of an extended resource than a node has": Case(
        (EXTENDED[0], pod("p", resources={"example.com/gpu": "4"}), *two_gpus("a"), *held("x", "a/gpu-0"))
    ),
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
    "more than devices and a device plugin have": Case(
        (
            EXTENDED[0],
            node("b", allocatable={"example.com/gpu": "1"}),
            pod("p", resources={"example.com/gpu": "4"}),
            *two_gpus("a"),
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
    "a cordoned node": Case((*wants(), node("a"), unschedulable(node("b")), pool("b", *gpus(2)))),
    "nodes that the scheduler rejects, and one where the pod fits": Case(
        (
            *wants(),
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
            *wants()[:2],
            selecting({"zone": "1"}),
            *two_gpus("a"),
            node("b", labels={"zone": "1"}),
            pool("b", gpu("gpu-0", **BROKEN)),
        )
    ),
    "one node that the scheduler rejects": Case((*wants(), tainted(node("a")), pool("a", *gpus(1)))),
    "a node with other devices that the scheduler rejects": Case(
        (*wants(request(selectors=[f'{MODEL} == "h100"'])), tainted(node("a")), pool("a", *gpus(1)), node("b"))
    ),
    "a required affinity": Case((*wants()[:2], near("b"), *two_gpus("a"), node("b"))),
    "scheduling gates": Case((*wants()[:2], gated("example.com/quota", "example.com/topology"), *two_gpus("a"))),
    "conditions that are not modeled": Case(
        (*wants()[:2], pod("p", "mine", resources={"cpu": "1"}), *two_gpus("a"))
    ),
    "an unknown node": Case((*wants(), node("worker-1"), pool("worker-1", *gpus(1))), nodes=("worker1",)),
    "no nodes": Case(wants()),
    "one node": Case(
        (*wants(), node("a"), pool("a", *gpus(1)), node("b"), pool("b", *gpus(1)), *held("x", "a/gpu-0")), nodes=("a",)
    ),
    # of pods that are well
    "fits with a share of a device": Case(
        (
            *wants(with_fields(request(), capacity={"requests": {"bandwidth": "3G"}})),
            node("a"),
            pool("a", {"name": "gpu-0", **SHARED}),
        )
    ),
    "fits": Case(
        (
            *wants(),
            *two_gpus("a", memory="80Gi"),
            *two_gpus("b"),
            node("c"),
        ),
        solver=replace(solver(), policy=BEST_FIT),
    ),
    "fits, where other pods lose least": Case(
        (
            *wants(request(selectors=[f'{MODEL} == "a100"'])),
            *two_gpus("a", model="a100"),
            node("b"),
            pool("b", gpu("gpu-0", model="a100"), gpu("gpu-1", model="h100")),
        ),
        solver=weighing((1, request(count=2, selectors=[f'{MODEL} == "a100"'])), (3, request(count=2))),
    ),
    "fits, by another policy": Case((*wants(), node("a"), pool("a", *gpus(1)))),
    "bound": Case((GPU, *two_gpus("a"), *held("p", "a/gpu-0"))),
}  # fmt: skip
