"""Bind and other writers: of two allocations that clash, the later one is given back."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from extender.framework.bind_errors import DoubleAllocationError
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from tests.extender.framework.bind.scenes import ALLOCATE, BIND, FORBIDDEN, Scene, action
from tests.kit import virtualtime
from tests.kit.clusters import claim, pod
from tests.kit.servers.memory import Fault
from tests.kit.virtualtime import in_virtual_time


def stolen(scene: Scene, device: str) -> Callable[[], Any]:
    """Another writer allocates the claim "other" while we write."""
    status = claim("other", allocated=[device], users=["q"])["status"]
    return lambda: scene.api.patch_status(CLAIMS, ObjectKey("ns", "other"), {"status": status})


class TestOtherWriters:
    """The API server does not stop two claims from holding one device: who is second gives it back."""

    def test_whoever_allocates_a_device_second_gives_it_back(self) -> None:
        scene = Scene(claim("a"), claim("other"), pod("p", "a"))
        scene.transport.script(ALLOCATE, action(stolen(scene, "n/gpu-0")))
        (answer,) = scene.run(scene.bind())
        assert answer.startswith("claim ns/a was allocated after others: device held twice: claim ns/other, ns/a")
        assert (scene.devices("a"), scene.users("a"), scene.node_of("p")) == ([], [], None)
        assert scene.devices("other") == ["n/gpu-0"]
        assert scene.run(scene.bind()) == [""]
        assert scene.devices("a") == ["n/gpu-1"]

    @in_virtual_time
    async def test_is_an_error_of_its_own(self) -> None:
        scene = Scene(claim("a"), claim("other"), pod("p", "a"))
        scene.transport.script(ALLOCATE, action(stolen(scene, "n/gpu-0")))
        with pytest.raises(DoubleAllocationError):
            await scene.bind()
        assert scene.held == {"n/gpu-0"}

    def test_whoever_allocates_a_device_first_keeps_it(self) -> None:
        scene = Scene(claim("a"), claim("other"), pod("p", "a"))
        scene.transport.script(BIND, action(stolen(scene, "n/gpu-0")))
        assert scene.run(scene.bind()) == [""]

    def test_seen_only_when_the_watch_has_caught_up(self) -> None:
        scene = Scene(claim("a"), claim("other"), pod("p", "a"))
        scene.watch.is_behind = True

        async def behind() -> None:
            await stolen(scene, "n/gpu-0")()
            asyncio.get_running_loop().call_later(2, scene.watch.catch_up)
            await scene.bind()

        (answer,) = scene.run(behind())
        assert "device held twice" in answer
        assert scene.devices("a") == []

    def test_all_claims_of_the_bind_are_given_back(self) -> None:
        scene = Scene(claim("a"), claim("b"), claim("other"), pod("p", "a", "b"))
        scene.transport.script(ALLOCATE, Fault(), action(stolen(scene, "n/gpu-1")))
        (answer,) = scene.run(scene.bind())
        assert answer.startswith("claim ns/b was allocated after others")
        assert (scene.devices("a"), scene.devices("b"), scene.held) == ([], [], {"n/gpu-1"})

    def test_what_a_crash_left_unchecked_is_checked(self) -> None:
        """Both claims are there when we start: which one was first is unknown, so ours is not used."""
        left = claim("a", allocated=["n/gpu-0"], users=["p"])
        scene = Scene(left, claim("other", allocated=["n/gpu-0"], users=["q"]), pod("p", "a"))
        assert scene.run(scene.bind()) == ["the allocation of claim a is void: others hold its devices"]
        assert (scene.devices("a"), scene.devices("other")) == ([], ["n/gpu-0"])

    def test_no_pod_is_reserved_on_an_allocation_that_is_void_whoever_made_it(self) -> None:
        void = claim("a", allocated=["n/gpu-0"], users=["r"])
        scene = Scene(void, claim("other", allocated=["n/gpu-0"], users=["q"]), pod("p", "a"))
        assert scene.run(scene.bind()) == ["the allocation of claim a is void: others hold its devices"]
        assert (scene.users("a"), scene.devices("a")) == (["r"], ["n/gpu-0"])

    def test_each_clash_is_counted_and_told_once(self) -> None:
        scene = Scene(claim("a"), claim("other"), pod("p", "a"))
        scene.transport.script(ALLOCATE, action(stolen(scene, "n/gpu-0")), Fault(), Fault(refused=FORBIDDEN))
        scene.run(scene.bind(), scene.bind())
        assert (len(scene.counted), scene.told) == (1, [("p", "DevicesTaken")])

    def test_a_claim_that_is_taken_from_the_pod_meanwhile(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.watch.is_behind = True

        async def taken() -> None:
            asyncio.get_running_loop().call_later(2, scene.watch.catch_up)
            bind = asyncio.create_task(scene.bind())
            await virtualtime.elapse(1)
            await scene.api.patch_status(CLAIMS, ObjectKey("ns", "a"), {"status": {"reservedFor": None}})
            await bind

        assert scene.run(taken()) == ["claim ns/a was taken from the pod meanwhile"]
        assert scene.node_of("p") is None

    def test_a_claim_that_a_bound_pod_uses_is_not_checked_again(self) -> None:
        used = claim("a", allocated=["n/gpu-0"], users=["r"])
        scene = Scene(used, claim("other", allocated=["n/gpu-0"]), pod("p", "a"), pod("r", "a", on="n"))
        assert scene.run(scene.bind()) == [""]

    def test_other_devices_are_no_clash(self) -> None:
        scene = Scene(claim("a"), claim("other"), pod("p", "a"))
        scene.transport.script(ALLOCATE, action(stolen(scene, "n/gpu-1")))
        assert scene.run(scene.bind()) == [""]
