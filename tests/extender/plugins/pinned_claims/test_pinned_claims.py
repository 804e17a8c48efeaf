"""The claims of pinned pods: what others write meanwhile, devices that become ready, and processes that end."""

import asyncio

import pytest

from extender.cluster.objects.claims import MARK
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from extender.plugins.pinned_claims import PinnedClaims
from tests.extender.framework.bind.mortal import End, Process, killed
from tests.extender.plugins.pinned_claims.scenes import POD, ROOM, WRITE, Scene, scene
from tests.kit import virtualtime
from tests.kit.binders import devices_of
from tests.kit.clusters import DRIVER, claim, local_slice, node, pinned
from tests.kit.servers.memory import Fault, memory_api
from tests.kit.virtualtime import in_virtual_time


class TestOtherWriters:
    def test_a_device_that_somebody_else_got_just_before_is_given_back(self) -> None:
        world = scene(claim("a"), claim("x"), pinned("p", "a"))

        async def other() -> None:
            await world.api.patch_status(CLAIMS, ObjectKey("ns", "x"), {"status": _status("x", "n/gpu-0", "q")})

        world.transport.script(WRITE, Fault(before=other))
        world.look()
        assert (world.has("a"), len(world.clashes)) == (([], []), 1)
        world.look(seconds=3)
        assert world.has("a") == (["n/gpu-1"], ["p"])

    @pytest.mark.parametrize("has_started", [False, True])
    def test_also_if_the_controller_has_reserved_it_meanwhile_unless_kubelet_has_started_the_pod(
        self, has_started: bool
    ) -> None:
        world = scene(claim("a"), claim("x"), pinned("p", "a"))

        async def other() -> None:
            await world.api.patch_status(CLAIMS, ObjectKey("ns", "x"), {"status": _status("x", "n/gpu-0", "q")})

        def reserved(reply: RawObject) -> RawObject:
            assert reply["status"]["allocation"]
            tasks.append(asyncio.ensure_future(controller()))
            return reply

        async def controller() -> None:
            users = [{"resource": "pods", "name": "p", "uid": "uid-p"}]
            await world.api.patch_status(CLAIMS, ObjectKey("ns", "a"), {"status": {"reservedFor": users}})
            if has_started:
                await world.api.patch_status(PODS, POD, {"status": {"phase": "Running"}})

        tasks: list[asyncio.Future[None]] = []
        world.transport.script(WRITE, Fault(before=other, reply=reserved))
        world.look(seconds=3, ticks=5)
        assert world.has("a") == (["n/gpu-0" if has_started else "n/gpu-1"], ["p"])
        assert len(world.clashes) == 1

    def test_a_claim_that_has_changed_since_it_was_checked_is_not_reserved(self) -> None:
        world = scene(claim("a"), pinned("p", "a"))

        async def change() -> None:
            await world.api.patch(CLAIMS, ObjectKey("ns", "a"), {"metadata": {"labels": {"new": "label"}}})

        world.transport.script(WRITE, Fault(), Fault(before=change))
        world.look()
        assert world.has("a") == (["n/gpu-0"], [])
        world.look(seconds=3)
        assert world.has("a") == (["n/gpu-0"], ["p"])

    @pytest.mark.parametrize("ends", [{"phase": "Succeeded"}, None], ids=["it ends", "it is deleted"])
    def test_devices_of_a_pod_that_ends_before_the_claim_is_reserved_are_given_back(
        self, ends: dict[str, str] | None
    ) -> None:
        world = scene(claim("a"), pinned("p", "a"))
        world.transport.script(WRITE, Fault(), Fault(refused=ApiError(409, "Conflict", "the object has changed")))
        world.look()
        assert world.has("a") == (["n/gpu-0"], [])
        virtualtime.run(world.api.patch_status(PODS, POD, {"status": ends}) if ends else world.api.delete(PODS, POD))
        world.look()
        assert world.has("a") == ([], [])

    def test_also_those_of_a_claim_for_which_a_controller_has_allocated_something(self) -> None:
        marked = {"annotations": {MARK: "licenses.example.com 1 2026-01-02T03:05:00Z"}}
        world = scene(claim("a", allocated=["n/gpu-0"], at="n", metadata=marked), pinned("p", "a"))
        virtualtime.run(PinnedClaims(world.binder.claims).give_back(world.state.snapshot.pods[POD]))
        assert world.has("a") == ([], [])

    def test_a_claim_that_another_pod_has_got_on_another_node_since_it_was_allocated_is_not_reserved(self) -> None:
        world = scene(claim("a"), claim("b"), pinned("p", "a", "b"))

        async def other() -> None:
            await world.api.patch_status(CLAIMS, ObjectKey("ns", "a"), {"status": {"allocation": None}})
            await world.api.patch_status(CLAIMS, ObjectKey("ns", "a"), {"status": _status("a", "m/gpu-0", "q")})

        world.transport.script(WRITE, Fault(), Fault(before=other))
        world.look()
        assert world.has("a") == (["m/gpu-0"], ["q"])


def _status(name: str, device: str, *users: str) -> RawObject:
    status: RawObject = claim(name, allocated=[device], at=device.split("/", maxsplit=1)[0], users=users)["status"]
    return status


class TestDevicesThatBecomeReady:
    READY, BROKEN = "example.com/ready", "example.com/broken"

    def world(self) -> Scene:
        attachable = local_slice("x", 1, bindingConditions=[self.READY], bindingFailureConditions=[self.BROKEN])
        world = scene(node("x"), attachable, claim("a"), pinned("p", "a", on="x"))
        world.look()
        return world

    def report(self, world: Scene, condition: str) -> None:
        device = {"driver": DRIVER, "pool": "x", "device": "gpu-0"}
        world.patch("a", devices=[{**device, "conditions": [{"type": condition, "status": "True"}]}])
        world.look(ticks=1)

    def test_the_claim_is_reserved_when_they_are_ready(self) -> None:
        world = self.world()
        assert world.has("a") == (["x/gpu-0"], [])
        self.report(world, self.READY)
        assert world.has("a") == (["x/gpu-0"], ["p"])

    def test_it_is_given_back_when_they_fail(self) -> None:
        world = self.world()
        self.report(world, self.BROKEN)
        assert world.has("a") == ([], [])

    def test_and_when_they_take_too_long(self) -> None:
        world = self.world()
        world.look(seconds=301, ticks=3)
        assert world.writes.count(WRITE) >= 2


ENDS = {
    "before the first write": (End(0, done=False), ""),
    "finalizer of a": (End(0, done=True), ""),
    "a allocated": (End(1, done=True), "a"),
    "finalizer of b": (End(2, done=True), "a"),
    "both allocated, not checked": (End(3, done=True), "a b"),
    "a reserved": (End(4, done=True), "A b"),
    "both reserved": (End(5, done=True), "A B"),
}


@pytest.mark.parametrize(("end", "left"), ENDS.values(), ids=list(ENDS))
@in_virtual_time
async def test_what_a_process_leaves_the_next_one_continues(end: End, left: str) -> None:
    async def state_of(name: str) -> str:
        status = (await api.get(CLAIMS, ObjectKey("ns", name))).get("status") or {}
        return "" if not status.get("allocation") else name.upper() if status.get("reservedFor") else name

    api = memory_api(*ROOM, claim("a"), claim("b"), pinned("p", "a", "b"))
    dying = Process(api, end)
    task = asyncio.create_task(_serve(dying))
    await dying.transport.died.wait()
    await killed(task)
    assert " ".join(filter(None, [await state_of("a"), await state_of("b")])) == left
    next_one = Process(api)
    assert await _serve(next_one) == ""
    assert [await state_of(name) for name in "ab"] == ["A", "B"]
    found = [devices_of(await api.get(CLAIMS, ObjectKey("ns", name))) for name in "ab"]
    assert sorted(found) == [["n/gpu-0"], ["n/gpu-1"]]
    assert not next_one.state.snapshot.assumed


async def _serve(process: Process) -> str:
    await PinnedClaims(process.binder.claims).serve(process.state.snapshot.pods[POD])
    return ""
