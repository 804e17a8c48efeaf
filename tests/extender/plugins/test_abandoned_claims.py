"""Claims that were allocated for a pod with a node, by a process that has ended before it could reserve them."""

import asyncio
from typing import Any

import pytest

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import ALLOCATED_FOR, ALLOCATION_MODE, IMMEDIATE
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLAIMS, PODS
from extender.plugins.abandoned_claims import AGAIN_SECONDS, IDLE_SECONDS, AbandonedClaims
from extender.plugins.pinned_claims import PinnedClaims
from extender.tools.faults import Faults
from extender.tools.offload import at_once
from tests.extender.framework.bind.mortal import End, Process, killed
from tests.extender.plugins.pinned_claims.scenes import POD, PROTECT, ROOM, WRITE, scene
from tests.kit import virtualtime
from tests.kit.binders import binder_over, devices_of
from tests.kit.clusters import claim, pinned, pod
from tests.kit.servers.freed import Freed
from tests.kit.servers.memory import Fault, Transport, memory_api

KEY = ObjectKey("ns", "a")


class Scene:
    """A process that has allocated nothing itself, on a cluster with claim `a`."""

    def __init__(self, *objects: RawObject) -> None:
        self.api = memory_api(*ROOM, *objects)
        self.transport = Transport(self.api)
        self.state = ClusterState()
        self.api.follow(self.state)
        self.clock = virtualtime.StillClock()
        writer = binder_over(self.transport, self.state).claims.writer
        self.task = AbandonedClaims(self.state, writer, Faults(), self.clock, at_once)
        self.passes(0)

    def passes(self, seconds: float) -> None:
        """Time passes, and the task has a turn."""
        self.clock.now += seconds
        virtualtime.run(self.task.tick())

    @property
    def devices(self) -> list[str]:
        return devices_of(virtualtime.run(self.api.get(CLAIMS, KEY)))


def allocated(uid: str = "uid-p", *users: str, **annotations: str) -> RawObject:
    """A claim that was allocated for the pod with a uid."""
    named: dict[str, Any] = {"annotations": {ALLOCATED_FOR: uid, **annotations}}
    return claim("a", allocated=["n/gpu-0"], at="n", users=users, metadata=named)


def _ended() -> RawObject:
    return {**pinned("p", "a"), "status": {"phase": "Succeeded"}}


@pytest.mark.parametrize("left", [(), (_ended(),), (pod("q", "a"),)], ids=["it is gone", "it has ended", "one waits"])
def test_a_claim_whose_pod_has_ended_is_given_back_after_a_minute(left: tuple[RawObject, ...]) -> None:
    scene = Scene(allocated(), *left)
    scene.passes(IDLE_SECONDS - 1)
    assert scene.devices == ["n/gpu-0"]
    scene.passes(1)
    assert (scene.devices, scene.task.idle_seconds) == ([], AGAIN_SECONDS)
    scene.passes(0)
    assert scene.task.idle_seconds == float("inf")


@pytest.mark.parametrize(
    "objects",
    [
        (allocated(), pinned("p", "a")),
        (allocated(), pinned("q", "a")),
        (allocated("uid-p", "q"),),
        (allocated(**{ALLOCATION_MODE: IMMEDIATE}),),
        (claim("a", allocated=["n/gpu-0"], at="n"),),
    ],
    ids=["its pod is there", "another pod has a node", "it is reserved", "it is immediate", "it names no pod"],
)
def test_other_claims_stay(objects: tuple[RawObject, ...]) -> None:
    scene = Scene(*objects)
    scene.passes(IDLE_SECONDS)
    scene.passes(AGAIN_SECONDS)
    assert (scene.devices, scene.transport.calls) == (["n/gpu-0"], [])


def test_a_claim_that_changes_is_left_for_another_minute() -> None:
    scene = Scene(allocated())
    scene.passes(IDLE_SECONDS - 1)
    virtualtime.run(scene.api.patch(CLAIMS, KEY, {"metadata": {"labels": {"new": "label"}}}))
    scene.passes(1)
    scene.passes(IDLE_SECONDS - 1)
    assert scene.devices == ["n/gpu-0"]
    scene.passes(1)
    assert scene.devices == []


def test_the_claims_of_one_namespace_do_not_delay_those_of_another() -> None:
    scene, freed, claims = Scene(), Freed(), [("a", "ns"), ("b", "ns"), ("own", "other")]
    for number, (name, namespace) in enumerate(claims):
        metadata = {"namespace": namespace, "annotations": {ALLOCATED_FOR: "uid-p"}}
        made = claim(name, allocated=[f"n/gpu-{number}"], at="n", metadata=metadata)
        virtualtime.run(scene.api.create(CLAIMS, made))
        virtualtime.run(scene.api.patch_status(CLAIMS, ObjectKey(namespace, name), {"status": made["status"]}))
    scene.api.follow(freed)
    scene.passes(0)
    scene.passes(IDLE_SECONDS)
    assert freed.names == ["a", "own", "b"]


@pytest.mark.parametrize("fault", [Fault(lost=True), Fault(refused=ApiError(409, "Conflict", "modified"))])
def test_a_write_that_fails_is_made_again(fault: Fault) -> None:
    scene = Scene(allocated())
    scene.transport.script(WRITE, fault)
    scene.passes(IDLE_SECONDS)
    assert scene.devices == ["n/gpu-0"]
    scene.passes(AGAIN_SECONDS)
    assert scene.devices == []


@virtualtime.in_virtual_time
async def test_what_a_killed_process_has_allocated_comes_back_if_the_pod_ends() -> None:
    api = memory_api(*ROOM, claim("a"), pinned("p", "a"))
    dying = Process(api, End(1, done=True))
    serving = asyncio.create_task(_serve(dying))
    await dying.transport.died.wait()
    await killed(serving)
    await api.delete(PODS, POD)
    next_one, clock = Process(api), virtualtime.StillClock()
    task = AbandonedClaims(next_one.state, next_one.binder.claims.writer, Faults(), clock, at_once)
    await task.tick()
    assert devices_of(await api.get(CLAIMS, KEY)) == ["n/gpu-0"]
    clock.now += IDLE_SECONDS
    await task.tick()
    assert devices_of(await api.get(CLAIMS, KEY)) == []


async def _serve(process: Process) -> str:
    await PinnedClaims(process.binder.claims).serve(process.state.snapshot.pods[POD])
    return ""


@pytest.mark.parametrize("finalizers", [[], [FINALIZER]], ids=["", "it has our finalizer"])
def test_a_claim_that_is_allocated_first_names_its_pod(finalizers: list[str]) -> None:
    world = scene(claim("a", metadata={"finalizers": finalizers}), pinned("p", "a"))
    world.look()
    assert world.get("a")["metadata"]["annotations"] == {ALLOCATED_FOR: "uid-p"}
    assert (world.has("a"), world.writes) == ((["n/gpu-0"], ["p"]), [PROTECT, WRITE, WRITE])
