"""Claims that bound pods have lost to others: found, counted and told once."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.cluster_state import ClusterState
from extender.framework.bound_pods import AT_ONCE, PIECE, READ_AT_ONCE, BoundPods, lacking, needs_claims
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from extender.plugins.lost_claims import LostClaims
from tests.kit import virtualtime
from tests.kit.clusters import claim, node, pod
from tests.kit.servers.memory import Fault, Transport, memory_api
from tests.kit.virtualtime import in_virtual_time

KEY, POD = ObjectKey("ns", "a"), ObjectKey("ns", "p")


class Scene:
    """A pod that is bound with its claim, and whoever looks for losses."""

    def __init__(self, found: RawObject, *objects: RawObject) -> None:
        self.api = memory_api(node("n"), found, *objects)
        self.state = ClusterState()
        self.api.follow(self.state)
        self.transport = Transport(self.api)
        self.counted: list[None] = []
        self.told: list[tuple[str, str]] = []
        self.losses = LostClaims(
            self.state,
            self.transport,
            lambda: self.counted.append(None),
            lambda user, note: self.told.append((user.name, note.reason)),
        )

    def look(self) -> list[tuple[str, str]]:
        """A whole round; what has been told since the beginning."""

        async def twice() -> None:
            await self.losses.tick()
            await self.losses.tick()

        virtualtime.run(twice())
        assert len(self.counted) == len(self.told)
        return self.told

    async def replace(self) -> None:
        await self.api.patch(CLAIMS, KEY, {"metadata": {"finalizers": None}})
        await self.api.delete(CLAIMS, KEY)
        await self.api.create(CLAIMS, claim("a"))

    async def deallocate(self) -> None:
        await self.api.patch_status(CLAIMS, KEY, {"status": {"allocation": None, "reservedFor": None}})

    async def delete(self) -> None:
        await self.api.delete(CLAIMS, KEY)


USED = claim("a", allocated=["n/gpu-0"], users=["p"])
LOST = [("p", "ClaimLost")]


def test_a_pod_with_its_claims_has_lost_none() -> None:
    scene = Scene(USED, pod("p", "a", on="n"))
    assert (scene.look(), scene.transport.calls) == ([], [])


@pytest.mark.parametrize("change", [Scene.replace, Scene.deallocate, Scene.delete])
def test_a_claim_that_others_took_is_told_once(
    change: Callable[[Scene], Coroutine[Any, Any, None]],
) -> None:
    scene = Scene(USED, pod("p", "a", on="n"))
    virtualtime.run(change(scene))
    assert scene.look() == LOST
    assert scene.look() == LOST


def test_one_that_was_lost_again_is_told_again() -> None:
    scene = Scene(USED, pod("p", "a", on="n"))
    for _ in range(2):
        virtualtime.run(scene.deallocate())
        scene.look()
        virtualtime.run(scene.api.patch_status(CLAIMS, KEY, {"status": USED["status"]}))
        scene.look()
    assert scene.told == LOST * 2


@pytest.mark.parametrize(
    "user",
    [pod("p", "a"), pod("p", "a", on="n", deleting=True), {**pod("p", "a", on="n"), "status": {"phase": "Succeeded"}}],
    ids=["pending", "being deleted", "finished"],
)
def test_pods_that_need_no_claims_lose_none(user: RawObject) -> None:
    assert Scene(claim("a"), user).look() == []


def test_news_of_claims_that_come_late_are_no_loss() -> None:
    scene = Scene(claim("a"), pod("p", "a", on="n"))
    virtualtime.run(scene.api.patch_status(CLAIMS, KEY, {"status": USED["status"]}))
    old = ClusterState()
    memory_api(node("n"), claim("a"), pod("p", "a", on="n")).follow(old)
    losses = LostClaims(old, scene.api, lambda: None, lambda user, _: scene.told.append((user.name, "")))
    virtualtime.run(losses.tick())
    virtualtime.run(losses.tick())
    assert scene.told == []


class Looked:
    """Whoever looks at bound pods, and settles those that have their claims."""

    def __init__(self, state: ClusterState) -> None:
        self.pods, self.state = BoundPods(state), state

    def look(self) -> list[str]:
        """The names of the pods of a whole round."""

        async def round_() -> list[str]:
            found = []
            for _ in range(2):
                async for each in self.pods.turn():
                    found.append(each.name)
                    if not lacking(each, self.state.snapshot):
                        self.pods.settled(each, self.state.snapshot)
            return found

        return virtualtime.run(round_())


def test_a_pod_is_left_alone_until_it_or_one_of_its_claims_changes() -> None:
    scene = Scene(USED, pod("p", "a", on="n"), claim("b", allocated=["n/gpu-1"], users=["q"]), pod("q", "b", on="n"))
    looked = Looked(scene.state)
    assert sorted(looked.look()) == ["p", "q"]
    assert looked.look() == []
    virtualtime.run(scene.api.patch_status(CLAIMS, KEY, {"status": {"reservedFor": None}}))
    assert looked.look() == ["p"]
    assert looked.look() == ["p"], "it lacks its claim"
    virtualtime.run(scene.api.patch_status(CLAIMS, KEY, {"status": USED["status"]}))
    assert looked.look() == ["p"]
    virtualtime.run(scene.api.patch(PODS, POD, {"metadata": {"labels": {"app": "web"}}}))
    assert looked.look() == ["p"]
    assert looked.look() == []


@given(st.data())
def test_pods_that_lack_a_claim_are_looked_at_and_the_others_are_left_alone(data: st.DataObject) -> None:
    names = [*"abcd"]
    scene = Scene(USED, *[claim(name, allocated=["n/gpu-0"], users=["p"]) for name in "bcd"], pod("p", "a", on="n"))
    looked = Looked(scene.state)
    looked.look()
    for number in range(data.draw(st.integers(1, 12))):
        _happens(scene, data, names, number)
        looked.look()
        snapshot = scene.state.snapshot
        lack = {each.name for each in snapshot.pods.values() if needs_claims(each) and lacking(each, snapshot)}
        assert set(looked.look()) == lack


def _happens(scene: Scene, data: st.DataObject, names: Sequence[str], number: int) -> None:
    name, key = f"q{number}", ObjectKey("ns", data.draw(st.sampled_from(names)))
    pods = [each.name for each in scene.state.snapshot.pods.values()]

    async def change() -> None:
        match data.draw(st.sampled_from(["new", "gone", "used", "free"])):
            case "new":
                named = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
                await scene.api.create(PODS, pod(name, *named, on=data.draw(st.sampled_from(["n", ""]))))
            case "gone" if pods:
                await scene.api.delete(PODS, ObjectKey("ns", data.draw(st.sampled_from(pods))))
            case "used":
                users = claim(key.name, allocated=["n/gpu-0"], users=pods)["status"]
                await scene.api.patch_status(CLAIMS, key, {"status": users})
            case "free":
                await scene.api.patch_status(CLAIMS, key, {"status": {"allocation": None, "reservedFor": None}})

    virtualtime.run(change())


def test_what_the_controller_released_of_a_pod_that_is_gone_is_no_loss() -> None:
    scene = Scene(USED, pod("p", "a", on="n"))

    async def gone() -> None:
        await scene.api.delete(PODS, POD)

    virtualtime.run(scene.deallocate())
    scene.transport.script("get resourceclaims", Fault(before=gone))
    assert scene.look() == []


@pytest.mark.parametrize("fault", [Fault(lost=True), Fault(refused=ApiError(403, "Forbidden", "no"))])
def test_what_can_not_be_read_is_looked_at_again(fault: Fault) -> None:
    scene = Scene(USED, pod("p", "a", on="n"))
    virtualtime.run(scene.deallocate())
    scene.transport.script("get resourceclaims", fault)
    assert scene.look() == []
    assert scene.look() == LOST


@in_virtual_time
async def test_other_work_gets_the_event_loop_while_many_bound_pods_are_looked_at() -> None:
    """All tasks that look at bound pods get them from here."""
    state = ClusterState()
    memory_api(node("n"), *[pod(f"p{number}", "a", on="n") for number in range(AT_ONCE)]).follow(state)
    at_a_time: list[int] = []

    async def others() -> None:
        while True:
            at_a_time.append(0)
            await asyncio.sleep(0)

    bound = BoundPods(state)
    assert [each async for each in bound.turn()] == []
    working = asyncio.create_task(others())
    await asyncio.sleep(0)
    async for _ in bound.turn():
        at_a_time[-1] += 1
    working.cancel()
    assert sum(at_a_time) == AT_ONCE
    assert max(at_a_time) == PIECE


async def test_other_work_gets_the_event_loop_while_all_bound_pods_are_read() -> None:
    """At first, and after more changes than are remembered."""
    state, pieces = ClusterState(), 4
    pods = [pod(f"p{number}", "a", on="n") for number in range(pieces * READ_AT_ONCE)]
    memory_api(node("n"), *pods).follow(state)
    passes = 0

    async def others() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(others())
    assert [each async for each in BoundPods(state).turn()] == []
    working.cancel()
    assert passes >= pieces
