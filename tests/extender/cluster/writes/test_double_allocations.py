"""Clashes: an allocation that comes after others for its devices is counted and told once, whoever wrote it."""

import asyncio

from extender.cluster.cluster_state import ClusterState
from extender.cluster.double_allocations import AT_ONCE, PIECE, DoubleAllocations
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from extender.lab.api import MemoryApi
from tests.kit import virtualtime
from tests.kit.clusters import claim, local_slice, node, pod
from tests.kit.servers.memory import memory_api
from tests.kit.virtualtime import in_virtual_time


class Scene:
    """Claims that another scheduler allocates, while we watch."""

    def __init__(self) -> None:
        claims = [claim(name) for name in "abc"]
        self.api: MemoryApi = memory_api(node("n"), local_slice("n", 2), *claims, pod("p", "a"), pod("q", "b"))
        self.state = ClusterState()
        self.api.follow(self.state)
        self.count = 0
        self.told: list[tuple[str, str]] = []
        self.double_allocations = DoubleAllocations(
            self._count, lambda pod, note: self.told.append((pod.name, note.text))
        )

    def _count(self) -> None:
        self.count += 1

    async def allocate(self, name: str, device: str, user: str) -> None:
        status = claim(name, allocated=[device], users=[user])["status"]
        await self.api.patch_status(CLAIMS, ObjectKey("ns", name), {"status": status})

    async def watched(self, *allocations: tuple[str, str, str]) -> None:
        await self.double_allocations.look(self.state)
        for each in allocations:
            await self.allocate(*each)
        await self.double_allocations.look(self.state)


def test_of_two_claims_with_one_device_the_later_one_is_told() -> None:
    scene = Scene()
    virtualtime.run(scene.watched(("a", "n/gpu-0", "p"), ("b", "n/gpu-0", "q")))
    assert scene.count == 1
    ((pod_name, text),) = scene.told
    assert pod_name == "q"
    assert text.startswith("claim ns/b was allocated after others: device held twice: claim ns/a, ns/b")


def test_other_devices_are_no_clash() -> None:
    scene = Scene()
    virtualtime.run(scene.watched(("a", "n/gpu-0", "p"), ("b", "n/gpu-1", "q")))
    assert (scene.count, scene.told) == (0, [])


@in_virtual_time
async def test_a_claim_that_changes_later_is_no_other_clash() -> None:
    scene = Scene()
    await scene.watched(("a", "n/gpu-0", "p"), ("b", "n/gpu-0", "q"))
    await scene.api.patch(CLAIMS, ObjectKey("ns", "b"), {"metadata": {"labels": {"x": "y"}}})
    await scene.watched()
    assert scene.count == 1


@in_virtual_time
async def test_allocated_anew_it_is_another_one() -> None:
    scene = Scene()
    await scene.watched(("a", "n/gpu-0", "p"), ("b", "n/gpu-0", "q"))
    await scene.api.patch_status(CLAIMS, ObjectKey("ns", "b"), {"status": {"allocation": None, "reservedFor": None}})
    await scene.watched(("b", "n/gpu-0", "q"))
    assert (scene.count, len(scene.told)) == (2, 2)


def test_what_a_pod_we_do_not_know_got_is_counted_all_the_same() -> None:
    scene = Scene()
    virtualtime.run(scene.watched(("a", "n/gpu-0", "p"), ("c", "n/gpu-0", "stranger")))
    assert (scene.count, scene.told) == (1, [])


def test_claims_that_were_there_before_the_oldest_change_that_is_known_are_looked_at() -> None:
    there = [claim(f"c{index}", allocated=[f"far/gpu-{index}"]) for index in range(10)]
    state = ClusterState(log_size=3)
    memory_api(claim("x", allocated=["n/gpu-0"]), claim("y", allocated=["n/gpu-0"]), *there).follow(state)
    counted: list[None] = []
    virtualtime.run(DoubleAllocations(lambda: counted.append(None), lambda _pod, _note: None).look(state))
    assert len(counted) == 2


def test_of_very_many_claims_some_are_looked_at_next_time() -> None:
    there = [claim(f"c{index}", allocated=[f"far/gpu-{index}"]) for index in range(AT_ONCE)]
    state = ClusterState()
    memory_api(*there, claim("x", allocated=["n/gpu-0"]), claim("y", allocated=["n/gpu-0"])).follow(state)
    counted: list[None] = []
    double_allocations = DoubleAllocations(lambda: counted.append(None), lambda _pod, _note: None)
    virtualtime.run(double_allocations.look(state))
    assert counted == []
    virtualtime.run(double_allocations.look(state))
    assert len(counted) == 2, "which of the two was first is not known"


async def test_other_work_gets_the_event_loop_while_many_claims_are_checked() -> None:
    there = [claim(f"c{index}", allocated=[f"far/gpu-{index}"]) for index in range(AT_ONCE)]
    state, passes = ClusterState(), 0
    memory_api(*there).follow(state)

    async def others() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(others())
    await DoubleAllocations(lambda: None, lambda _pod, _note: None).look(state)
    working.cancel()
    assert passes == AT_ONCE / PIECE
