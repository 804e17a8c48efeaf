"""A device that several claims share: what is kept of it for a pod, and what others may have meanwhile."""

from typing import Any, Final

import pytest

from extender.framework.filter import filter_nodes
from extender.kube.api import ObjectKey
from tests.kit.clusters import GPU, Cluster, Object, claim, client_of, local_slice, node, pod, solver

SHARED: Final[dict[str, Any]] = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80"}}}


def share(amount: int) -> Object:
    exactly = {"deviceClassName": "gpu", "count": 1, "capacity": {"requests": {"memory": str(amount)}}}
    return {"name": "gpu", "exactly": {**exactly, "allocationMode": "ExactCount"}}


def holder(amount: int, *, deleting: bool) -> list[Object]:
    held = claim("victim-c", share(amount), allocated=["a/gpu-0"], at="a", users=["victim"])
    (result,) = held["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": "6d1f4a3e-6a73-4a3e-9d0f-000000000001", "consumedCapacity": {"memory": str(amount)}}
    return [pod("victim", "victim-c", on="a", deleting=deleting), held]


def nominated(amount: int) -> list[Object]:
    found = pod("vip", "vip-c", nominated="a", priority=1000)
    text = "node a: devices are kept for the pod: gpu.example.com/a/gpu-0; evicted for it: uid-victim"
    found["status"]["conditions"] = [{"type": "dra-extender/DevicesKept", "status": "True", "message": text}]
    return [found, claim("vip-c", share(amount))]


def fits(cluster: Cluster, name: str) -> bool:
    snapshot = cluster.state.snapshot
    return bool(filter_nodes(snapshot.pods[ObjectKey("ns", name)], ["a"], snapshot, solver()).passed)


CASES: Final = [
    # victim, kept, asked, fits
    (60, 40, 20, True),
    (60, 40, 21, False),
    (20, 60, 20, True),
    (20, 60, 21, False),
    (40, 40, 40, True),
    (80, 10, 1, False),
]


@pytest.mark.parametrize("deleting", [False, True])
@pytest.mark.parametrize(("victim", "kept", "asked", "expected"), CASES)
def test_what_neither_a_victim_holds_now_nor_is_kept_for_later_goes_to_others(
    victim: int, kept: int, asked: int, expected: bool, deleting: bool
) -> None:
    there = (GPU, node("a"), local_slice("a", 1, **SHARED), *holder(victim, deleting=deleting), *nominated(kept))
    cluster = Cluster.of(*there, pod("low", "low-c"), claim("low-c", share(asked)))
    assert fits(cluster, "low") == expected


async def test_an_explanation_says_how_much_is_free_beside_it() -> None:
    there = (GPU, node("a"), local_slice("a", 1, **SHARED), *holder(60, deleting=False), *nominated(40))
    cluster = Cluster.of(*there, pod("low", "low-c"), claim("low-c", share(30)))
    async with client_of(cluster.app()) as client:
        text = (await client.get("/explain/ns/low")).raise_for_status().text
    assert "20 of 80 free" in text
    assert "-" not in text.partition(" of 80 free")[0][-4:]
