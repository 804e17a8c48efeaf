"""After the reservation: fences, releases, reservations after a fence, confirmations, and the Binding."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from extender.cluster.objects.claims import CONFIRMED
from extender.cluster.writes.pods import ATTEMPTS
from extender.cluster.writes.reservations import Reservation
from extender.cluster.writes.writer import ReleaseOutcome, Writer
from extender.kube.api import OutcomeUnknownError, RawObject, WriteRefusedError
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLAIMS, PODS
from tests.extender.cluster.writes.scenes import (
    ALLOCATE,
    BIND,
    CONFLICT,
    FENCE,
    KEY,
    POD,
    PROTECT,
    READ,
    Scene,
    allocation,
)
from tests.kit import virtualtime
from tests.kit.clusters import DRIVER, claim, pod
from tests.kit.servers.memory import NOW, Fault, writes


class TestFence:
    """Before an undo: a Binding that is still on its way must not land any more."""

    def test_a_late_binding_is_refused(self) -> None:
        scene = Scene()

        async def late() -> None:
            scene.transport.script(BIND, Fault(late=2), *[Fault(lost=True)] * ATTEMPTS)
            with pytest.raises(OutcomeUnknownError):
                await scene.writer.bind(scene.pod, "n")
            assert await scene.writer.fence(scene.pod) == ""
            await virtualtime.elapse(3)

        virtualtime.run(late())
        raw = virtualtime.run(scene.api.get(PODS, POD))
        assert "nodeName" not in raw["spec"]

    def test_each_one_changes_the_pod(self) -> None:
        scene = Scene()
        versions = set()
        for _ in range(3):
            assert virtualtime.run(scene.writer.fence(scene.pod)) == ""
            versions.add(virtualtime.run(scene.api.get(PODS, POD))["metadata"]["resourceVersion"])
        assert len(versions) == 3

    def test_a_pod_that_is_bound_says_where(self) -> None:
        scene = Scene()
        scene.bind()
        assert virtualtime.run(scene.writer.fence(scene.pod)) == "n"

    def test_a_pod_that_is_gone_needs_none(self) -> None:
        scene = Scene()
        virtualtime.run(scene.api.delete(PODS, POD))
        assert virtualtime.run(scene.writer.fence(scene.pod)) == ""


class TestRelease:
    def test_the_allocation_goes_with_the_last_reservation(self) -> None:
        scene = Scene()
        scene.reserve()
        scene.release()
        assert (scene.device, scene.users, scene.held) == (None, [], set())

    def test_but_stays_if_somebody_else_has_come_to_use_it(self) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-0"], users=["p", "q"]))
        scene.release()
        assert (scene.device, scene.users) == ("gpu-0", ["q"])

    def test_with_what_drivers_said_of_the_devices(self) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-0"], users=["p"]))
        reported = [{"driver": DRIVER, "pool": "n", "device": "gpu-0"}]
        virtualtime.run(scene.api.patch_status(CLAIMS, KEY, {"status": {"devices": reported}}))
        scene.release()
        assert scene.claim["status"] == {"reservedFor": []}

    def test_a_second_release_writes_nothing(self) -> None:
        scene = Scene()
        scene.reserve()
        reservation = Reservation(scene.reservation().claim, scene.pod, allocation(), allocates=True, frees=True)
        for _ in range(2):
            virtualtime.run(scene.writer.release(scene.pod, [reservation]))
        assert writes(scene.transport.calls) == [PROTECT, ALLOCATE, FENCE, ALLOCATE]

    def test_of_a_claim_that_is_gone(self) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-0"], users=["p"]))
        reservation = scene.reservation()
        virtualtime.run(scene.api.delete(CLAIMS, KEY))
        virtualtime.run(scene.writer.release(scene.pod, [reservation]))
        assert writes(scene.transport.calls) == []

    @pytest.mark.parametrize("fault", [Fault(lost=True), Fault(reply_lost=True), Fault(refused=CONFLICT)])
    def test_is_repeated_like_any_write(self, fault: Fault) -> None:
        scene = Scene()
        scene.reserve()
        scene.transport.script(ALLOCATE, fault)
        scene.release()
        assert (scene.device, scene.held) == (None, set())

    def test_the_claim_is_read_before_the_fence_and_written_after_it(self) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-0"], users=["p"]))
        scene.release()
        assert scene.transport.calls == [READ, "get pods", FENCE, ALLOCATE]

    def test_a_claim_that_is_reserved_for_nobody_needs_no_fence(self) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-0"]))
        scene.release()
        assert (scene.transport.calls, scene.device) == ([READ, ALLOCATE], None)

    def test_a_claim_that_a_bind_has_confirmed_after_the_fence_stays_with_the_bound_pod(self) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-0"], users=["p"]))
        reservation = scene.reservation()
        elsewhere = Writer(scene.api, scene.state, lambda: NOW)

        async def bind() -> None:
            fenced = await elsewhere.read_pod(POD, "uid-p")
            await elsewhere.reserve(reservation, fenced.fence)
            await elsewhere.bind(fenced, "n")

        scene.transport.script(ALLOCATE, Fault(before=bind))
        assert virtualtime.run(scene.writer.release(scene.pod, [replace(reservation, frees=True)])) == ReleaseOutcome(
            "n"
        )
        assert (scene.device, scene.users) == ("gpu-0", ["p"])

    def test_one_that_has_another_allocation_by_now_is_another_binds(self) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-1"], users=["p"]))
        other = Reservation(scene.reservation().claim, scene.pod, allocation(), allocates=True, frees=True)
        assert virtualtime.run(scene.writer.release(scene.pod, [other])) == ReleaseOutcome("")
        assert (scene.device, scene.users) == ("gpu-1", ["p"])

    def test_leaves_alone_what_is_being_deleted(self) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-0"], users=["p"], metadata={"finalizers": [FINALIZER]}))
        virtualtime.run(scene.api.delete(CLAIMS, KEY))
        scene.release()
        assert writes(scene.transport.calls) == []


class TestReserveAfterAFence:
    """Whoever has fenced the pod may be about to take what it has: it is written to, so that this is refused."""

    def reserve(self, scene: Scene, fence: str) -> list[str]:
        scene.transport.calls.clear()
        virtualtime.run(scene.writer.reserve(scene.reservation(), fence))
        return scene.transport.calls

    def test_is_one_write_after_each_fence(self) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-0"], users=["p"], metadata={"finalizers": [FINALIZER]}))
        assert self.reserve(scene, "") == [READ]
        assert self.reserve(scene, "7") == [PROTECT]
        assert scene.claim["metadata"]["annotations"] == {CONFIRMED: "uid-p 7"}
        assert self.reserve(scene, "7") == [READ]
        assert self.reserve(scene, "8") == [PROTECT]
        assert (scene.device, scene.users) == ("gpu-0", ["p"])

    def test_a_claim_that_had_to_be_written_needs_no_other(self) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-0"], metadata={"finalizers": [FINALIZER]}))
        assert self.reserve(scene, "7") == [ALLOCATE]

    @pytest.mark.parametrize("fault", [Fault(lost=True), Fault(reply_lost=True), Fault(refused=CONFLICT)])
    def test_is_repeated_like_any_write(self, fault: Fault) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-0"], users=["p"]))
        scene.transport.script(PROTECT, fault)
        self.reserve(scene, "7")
        assert scene.claim["metadata"]["annotations"] == {CONFIRMED: "uid-p 7"}


class TestConfirm:
    """A bind sees whether a claim is still its pod's."""

    def confirm(self, patch: RawObject) -> list[str]:
        """The calls that it makes after another writer's patch."""
        scene = Scene(claim("gpu", allocated=["n/gpu-0"], users=["p"]))
        reservation = scene.reservation()
        virtualtime.run(scene.api.patch_status(CLAIMS, KEY, {"status": patch}))
        virtualtime.run(scene.writer.confirm(reservation))
        return scene.transport.calls

    def test_an_unchanged_claim_is_confirmed_by_a_read(self) -> None:
        assert self.confirm({}) == [READ]

    @pytest.mark.parametrize(
        ("patch", "message"),
        [
            ({"allocation": None, "reservedFor": None}, "claim gpu was deallocated meanwhile"),
            ({"reservedFor": None}, "claim ns/gpu was taken from pod ns/p"),
        ],
    )
    def test_finds_that_the_claim_was_taken(self, patch: RawObject, message: str) -> None:
        with pytest.raises(WriteRefusedError, match=message):
            self.confirm(patch)


class TestBinding:
    def bound(self, scene: Scene) -> str | None:
        raw = virtualtime.run(scene.api.get(PODS, POD))
        found: str | None = raw["spec"].get("nodeName")
        return found

    def test_a_binding_is_one_call(self) -> None:
        scene = Scene()
        scene.bind()
        assert self.bound(scene) == "n"
        assert scene.transport.calls == [BIND]

    def test_a_pod_that_was_changed_meanwhile(self) -> None:
        scene = Scene()
        virtualtime.run(scene.api.patch_status(PODS, POD, {"status": {"nominatedNodeName": "n"}}))
        scene.bind()
        assert self.bound(scene) == "n"
        assert scene.transport.calls == [BIND, "get pods", BIND]

    @pytest.mark.parametrize("fault", [Fault(lost=True), Fault(reply_lost=True)], ids=["lost", "reply lost"])
    def test_an_unknown_outcome_is_looked_at(self, fault: Fault) -> None:
        scene = Scene()
        scene.transport.script(BIND, fault)
        scene.bind()
        assert self.bound(scene) == "n"
        assert scene.transport.calls.count(BIND) == (1 if fault.reply_lost else 2)

    def test_that_stays_unknown_says_so(self) -> None:
        scene = Scene()
        scene.transport.script(BIND, *[Fault(lost=True)] * ATTEMPTS)
        with pytest.raises(OutcomeUnknownError):
            scene.bind()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda api: api.bind_pod(POD, "m", uid="uid-p"), "pod ns/p is bound to node m already"),
            (lambda api: api.delete(PODS, POD), "pod ns/p is gone"),
            (lambda api: api.patch_status(PODS, POD, {"status": {"phase": "Failed"}}), "pod ns/p is finished"),
        ],
    )
    def test_a_binding_that_is_refused_says_why(self, change: Callable[[Any], Awaitable[Any]], message: str) -> None:
        scene = Scene()

        async def before() -> None:
            await change(scene.api)

        scene.transport.script(BIND, Fault(before=before))
        with pytest.raises(WriteRefusedError, match=message):
            scene.bind()

    def test_another_pod_of_that_name(self) -> None:
        scene = Scene()

        async def again() -> None:
            await scene.api.delete(PODS, POD)
            await scene.api.create(PODS, pod("p"))

        scene.transport.script(BIND, Fault(before=again))
        with pytest.raises(WriteRefusedError, match="pod ns/p was deleted and made again"):
            scene.bind()
        assert self.bound(scene) is None
