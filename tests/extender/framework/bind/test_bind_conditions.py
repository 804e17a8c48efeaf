"""Bind and devices that must be attached first; what is given back in the background."""

import asyncio
from datetime import timedelta

import pytest

from extender.framework.filter import filter_nodes
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from tests.extender.framework.bind.scenes import ALLOCATE, BIND, GET_CLAIM, Scene
from tests.kit import virtualtime
from tests.kit.clusters import DRIVER, claim, device_class, network_slice, pod, request, solver
from tests.kit.servers.memory import Fault, writes


class Fabric(Scene):
    """With a device that every node reaches, once it is attached: its driver says when."""

    ATTACHED, BROKEN = "example.com/attached", "example.com/broken"
    WAITING = f"waiting for {ATTACHED} of gpu.example.com/fabric/gpu-0"

    def __init__(self) -> None:
        conditions = {"bindingConditions": [self.ATTACHED], "bindingFailureConditions": [self.BROKEN]}
        device = {"attributes": {"nic": {"bool": True}}, "bindsToNode": True, **conditions}
        nic = device_class("nic", selectors=['"nic" in device.attributes["gpu.example.com"]'])
        asking = claim("a", request(device_class="nic"))
        super().__init__(network_slice("fabric", 1, **device), nic, asking, pod("p", "a"))

    def report(self, condition: str) -> None:
        conditions = [{"type": condition, "status": "True", "message": "said the driver"}]
        device = {"driver": DRIVER, "pool": "fabric", "device": "gpu-0", "conditions": conditions}
        patch = {"status": {"devices": [device]}}
        virtualtime.run(self.api.patch_status(CLAIMS, ObjectKey("ns", "a"), patch))


class TestBindingConditions:
    """Devices that must be attached first: the bind waits across calls, with allocation and reservation in place."""

    def test_the_pod_is_bound_when_its_device_is_ready(self) -> None:
        scene = Fabric()
        assert scene.run(scene.bind()) == [scene.WAITING]
        assert scene.run(scene.bind()) == [scene.WAITING]
        assert (scene.devices("a"), scene.users("a"), scene.node_of("p")) == (["fabric/gpu-0"], ["p"], None)
        scene.report(scene.ATTACHED)
        assert scene.run(scene.bind(node_name="m")) == ["node m: claim a is allocated for other nodes"]
        assert scene.run(scene.bind()) == [""]
        assert scene.node_of("p") == "n"

    def test_what_fails_is_given_back_and_allocated_anew(self) -> None:
        scene = Fabric()
        scene.run(scene.bind())
        scene.report(scene.BROKEN)
        expected = "claim ns/a: example.com/broken of gpu.example.com/fabric/gpu-0: said the driver"
        assert scene.run(scene.bind()) == [expected]
        assert (scene.devices("a"), scene.users("a"), scene.held) == ([], [], set())
        assert scene.run(scene.bind(node_name="m")) == [scene.WAITING]

    @pytest.mark.parametrize(("seconds", "is_over"), [(600, False), (601, True)])
    def test_nobody_waits_longer_than_ten_minutes(self, seconds: int, is_over: bool) -> None:
        scene = Fabric()
        scene.run(scene.bind())
        scene.now += timedelta(seconds=seconds)
        lapsed = f"claim ns/a: binding timeout after 600 s of {scene.WAITING}"
        assert scene.run(scene.bind()) == [lapsed if is_over else scene.WAITING]
        assert scene.devices("a") == ([] if is_over else ["fabric/gpu-0"])

    def test_a_pod_is_tried_again_whose_allocation_was_perhaps_not_written(self) -> None:
        """Otherwise it would wait for a driver that has heard of no allocation, and the device with it."""
        scene = Fabric()
        scene.transport.script(ALLOCATE, Fault(lost=True))
        scene.transport.script(GET_CLAIM, Fault(lost=True))
        assert scene.run(scene.bind()) == [f"{GET_CLAIM}: outcome unknown: timed out"]
        assert (scene.devices("a"), scene.held) == ([], {"fabric/gpu-0"})
        snapshot = scene.state.snapshot
        assert filter_nodes(snapshot.pods[ObjectKey("ns", "p")], ["n", "m"], snapshot, solver()).passed == ("n",)
        assert scene.run(scene.bind()) == [scene.WAITING]
        assert (scene.devices("a"), scene.users("a")) == (["fabric/gpu-0"], ["p"])

    def test_a_device_that_is_attached_in_the_end_is_not_too_late(self) -> None:
        scene = Fabric()
        scene.run(scene.bind())
        scene.now += timedelta(seconds=900)
        scene.report(scene.ATTACHED)
        assert scene.run(scene.bind()) == [""]


class TestGivingBack:
    """In the background, for a pod that filter rejects because of what its claims have."""

    def give_back(self, scene: Scene, *names: str) -> None:
        snapshot = scene.state.snapshot

        async def main() -> None:
            claims = [snapshot.claims[ObjectKey("ns", name)] for name in names]
            scene.binder.give_back(snapshot.pods[ObjectKey("ns", "p")], claims, "not ready in time")
            await virtualtime.elapse(10)

        virtualtime.run(main())

    def test_what_is_reserved_for_the_pod_alone(self) -> None:
        scene = Scene(claim("a", allocated=["n/gpu-0"], users=["p"]), pod("p", "a"))
        self.give_back(scene, "a")
        assert (scene.devices("a"), scene.users("a")) == ([], [])
        assert writes(scene.transport.calls) == ["patch_status pods", ALLOCATE]

    def test_what_nobody_uses_needs_no_fence_which_would_wake_the_pod(self) -> None:
        scene = Scene(claim("a", allocated=["n/gpu-0"]), pod("p", "a"))
        self.give_back(scene, "a")
        assert scene.devices("a") == []
        assert writes(scene.transport.calls) == [ALLOCATE]

    def test_a_claim_that_other_pods_use_stays_allocated(self) -> None:
        scene = Scene(claim("a", allocated=["n/gpu-0"], users=["p", "q"]), pod("p", "a"), pod("q", "a"))
        self.give_back(scene, "a")
        assert (scene.devices("a"), scene.users("a")) == (["n/gpu-0"], ["q"])

    def test_not_while_the_pod_is_being_bound(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.transport.script(BIND, Fault(seconds=1))

        async def both() -> None:
            bind = asyncio.create_task(scene.bind())
            await virtualtime.elapse(0.5)
            snapshot = scene.state.snapshot
            given = [snapshot.claims[ObjectKey("ns", "a")]]
            scene.binder.give_back(snapshot.pods[ObjectKey("ns", "p")], given, "not ready in time")
            await bind

        assert scene.run(both()) == [""]
        assert (scene.devices("a"), scene.node_of("p")) == (["n/gpu-0"], "n")

    def test_a_bind_waits_until_a_claim_is_given_back(self) -> None:
        scene = Scene(claim("a", allocated=["n/gpu-0"], users=["p"]), pod("p", "a"))
        scene.transport.script(GET_CLAIM, Fault(seconds=1))

        async def both() -> None:
            snapshot = scene.state.snapshot
            given = [snapshot.claims[ObjectKey("ns", "a")]]
            scene.binder.give_back(snapshot.pods[ObjectKey("ns", "p")], given, "not ready in time")
            await scene.bind(node_name="m")

        assert scene.run(both()) == [""]
        assert (scene.devices("a"), scene.node_of("p")) == (["m/gpu-0"], "m")
