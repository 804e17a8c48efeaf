"""Causes that lie in requests and claims, each in a cluster of its own; in the order of explanations.txt."""

from collections.abc import Mapping

from allocator import Limits
from tests.extender.answers.explain.scenes import (
    MODEL,
    SAME_ROOT,
    Case,
    gpu,
    gpus,
    held,
    owned_by,
    pool,
    root,
    two_gpus,
    wants,
    with_fields,
)
from tests.kit.clusters import DRIVER, GPU, claim, node, pod, request, solver

OF_CLAIMS: Mapping[str, Case] = {
    "too few on every node": Case(
        (*wants(request(count=3)), *two_gpus("a"), *two_gpus("b"))
    ),
    "several pods in the way": Case(
        (
            *wants(request(count=2)),
            node("a"),
            pool("a", *gpus(4)),
            *(each for n in range(4) for each in held(f"x{n}", f"a/gpu-{n}", priority=10 - n)),
        )
    ),
    "a pod in the way that a controller makes again": Case(
        (*wants(), node("a"), pool("a", *gpus(1)), *owned_by("ReplicaSet", "web-5f4", *held("x", "a/gpu-0")))
    ),
    "no common value": Case(
        (
            *wants(request(count=2), constraints=(SAME_ROOT,)),
            node("a"),
            pool("a", gpu("gpu-0", **root("left")), gpu("gpu-1", **root("right"))),
        )
    ),
    "fewer devices with one value": Case(
        (
            *wants(request(count=6), constraints=(SAME_ROOT,)),
            node("a"),
            pool("a", *(gpu(f"gpu-{n}", **root("left" if n < 4 else "right")) for n in range(6))),
        )
    ),
    "all values are the same": Case(
        (
            *wants(request(count=2), constraints=({"distinctAttribute": f"{DRIVER}/root"},)),
            node("a"),
            pool("a", *gpus(2, **root("left"))),
        )
    ),
    "a constraint on an attribute that is spelt otherwise": Case(
        (
            *wants(request(count=2), constraints=({"matchAttribute": f"{DRIVER}/rooot"},)),
            node("a"),
            pool("a", *gpus(2, **root("left"))),
        )
    ),
    "requests that compete for devices that a constraint allows": Case(
        (*wants(request("one"), request("two"), constraints=(SAME_ROOT,)), node("a"), pool("a", *gpus(1, **root("x"))))
    ),
    "requests that compete": Case((*wants(request("one"), request("two")), node("a"), pool("a", *gpus(1)))),
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
        (*wants(with_fields(request(), allocationMode="All", count=0)), *two_gpus("a"), *held("x", "a/gpu-0"))
    ),
    "more than a claim can hold": Case((*wants(request(count=40)), node("a"), pool("a", *gpus(40)))),
    "an incomplete pool": Case((*wants(), node("a"), pool("a", *gpus(2), resourceSliceCount=3))),
    "an invalid pool": Case((*wants(), node("a"), pool("a", *gpus(1), *gpus(1)))),
    "in use, and no common value either": Case(
        (
            *wants(request(count=3), constraints=(SAME_ROOT,)),
            node("a"),
            pool("a", *(gpu(f"gpu-{n}", **root(str(n % 2))) for n in range(4))),
            *(each for n in range(4) for each in held(f"x{n}", f"a/gpu-{n}")),
        )
    ),
    "too many, and no common value either": Case(
        (
            *wants(request("r0", count=2), request("r1", count=3), constraints=(SAME_ROOT,)),
            node("a"),
            pool("a", *(gpu(f"gpu-{n}", **root(str(n % 2))) for n in range(4))),
        )
    ),
    "search limit": Case(
        (
            *wants(*(request(f"r{n}", count=2) for n in range(3)), constraints=(SAME_ROOT,)),
            node("a"),
            pool("a", *(gpu(f"gpu-{n}", **root(str(n % 4))) for n in range(12))),
        ),
        solver=solver(limits=Limits(steps=3)),
    ),
}  # fmt: skip
