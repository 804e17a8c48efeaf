"""The writes of a bind, one claim at a time: preconditions, conflicts, unknown outcomes, undo."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from allocator import Quantity
from extender.cluster.cluster_state import ClusterState
from extender.cluster.writes.pods import ATTEMPTS
from extender.cluster.writes.writer import Writer
from extender.kube.api import ApiError, ObjectKey, OutcomeUnknownError, RawObject, UnreachableError, WriteRefusedError
from extender.kube.claim_rules import ADMIN_LABEL, FINALIZER
from extender.kube.encoding import dumps, loads
from extender.kube.resources import CLAIMS, NAMESPACES, Resource
from tests.extender.cluster.writes.scenes import (
    ALLOCATE,
    CONFLICT,
    FORBIDDEN,
    KEY,
    LABEL,
    PROTECT,
    READ,
    Scene,
    allocation,
)
from tests.extender.framework.bind.scenes import Lagging
from tests.kit import virtualtime
from tests.kit.clusters import DRIVER, claim, pod
from tests.kit.servers.memory import NOW, NOW_TEXT, Fault, Transport, writes


class TestReserve:
    def test_finalizer_then_allocation_and_reservation_in_one_write(self) -> None:
        scene = Scene()
        scene.reserve()
        assert scene.transport.calls == [PROTECT, ALLOCATE]
        assert scene.claim["metadata"]["finalizers"] == [FINALIZER]
        status = scene.claim["status"]
        assert status["allocation"]["allocationTimestamp"] == NOW_TEXT
        assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "uid-p"}]
        assert scene.device == "gpu-0"
        assert not scene.state.snapshot.assumed
        assert scene.held == {"gpu-0"}

    def test_fields_that_we_do_not_know_survive(self) -> None:
        there = claim("gpu", metadata={"finalizers": ["x/y"], "newField": {"a": 1}})
        scene = Scene({**there, "status": {"newStatus": [1, 2]}, "newTop": True})
        scene.reserve()
        after = scene.claim
        assert after["metadata"]["newField"] == {"a": 1}
        assert after["metadata"]["finalizers"] == ["x/y", FINALIZER]
        assert (after["status"]["newStatus"], after["newTop"]) == ([1, 2], True)

    @pytest.mark.parametrize("levels", [300, 1100, 4900])
    def test_however_deep_they_are(self, levels: int) -> None:
        parameters = loads(b'{"a":%b}' % (b"[" * levels + b"]" * levels))
        there = claim("gpu")
        there["spec"]["devices"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
        scene = Scene(there)
        scene.reserve()
        assert scene.users == ["p"]
        assert dumps(scene.claim["spec"]).endswith(b'"parameters":%b}}]}}' % dumps(parameters))

    def test_an_allocated_claim_is_only_reserved(self) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-1"], users=["q"], metadata={"finalizers": [FINALIZER]}))
        scene.reserve()
        assert scene.transport.calls == [ALLOCATE]
        assert (scene.device, scene.users) == ("gpu-1", ["q", "p"])
        assert "allocationTimestamp" not in scene.claim["status"]["allocation"]

    def test_one_that_is_reserved_for_the_pod_is_read_not_written(self) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-1"], users=["p"]))
        scene.reserve()
        assert scene.transport.calls == [READ]

    @pytest.mark.parametrize("call", [PROTECT, ALLOCATE])
    def test_changed_by_others_meanwhile_it_is_read_and_written_again(self, call: str) -> None:
        scene = Scene()
        scene.transport.script(call, scene.by_others(LABEL))
        scene.reserve()
        assert (scene.device, scene.users) == ("gpu-0", ["p"])
        assert scene.claim["metadata"]["labels"] == {"a": "b"}

    def test_the_finalizer_is_put_back_if_it_was_taken_off_meanwhile(self) -> None:
        scene = Scene()
        scene.transport.script(ALLOCATE, scene.by_others({"metadata": {"finalizers": None}}))
        scene.reserve()
        assert writes(scene.transport.calls) == [PROTECT, ALLOCATE, PROTECT, ALLOCATE]
        assert scene.claim["metadata"]["finalizers"] == [FINALIZER]

    def test_a_write_that_meets_conflicts_is_given_up_after_some_attempts(self) -> None:
        scene = Scene()
        scene.transport.script(ALLOCATE, *[Fault(refused=CONFLICT)] * 9)
        with pytest.raises(WriteRefusedError, match="claim ns/gpu was changed by others 5 times"):
            scene.reserve()
        assert scene.transport.calls.count(ALLOCATE) == ATTEMPTS
        assert scene.held == set()

    @pytest.mark.parametrize("call", [PROTECT, ALLOCATE])
    def test_what_is_refused_is_not_in_flight(self, call: str) -> None:
        scene = Scene()
        scene.transport.script(call, Fault(refused=FORBIDDEN))
        with pytest.raises(WriteRefusedError, match="claim ns/gpu: not allowed"):
            scene.reserve()
        assert scene.held == set()


def taken(users: list[str], device: str = "gpu-0") -> RawObject:
    return {"status": claim("gpu", allocated=[f"n/{device}"], users=users)["status"]}


class TestPreconditions:
    """What others may have done when our write is refused with a conflict."""

    @pytest.mark.parametrize(
        ("patch", "message"),
        [
            (taken(["q"], "gpu-1"), "claim gpu was allocated otherwise meanwhile"),
            (taken([f"q{i}" for i in range(256)]), "claim gpu is reserved for 256 pods already"),
        ],
    )
    def test_it_can_not_be_ours_any_more(self, patch: RawObject, message: str) -> None:
        scene = Scene()
        scene.transport.script(ALLOCATE, scene.by_others(patch, status=True))
        with pytest.raises(WriteRefusedError, match=message):
            scene.reserve()
        assert not scene.state.snapshot.assumed
        assert "p" not in scene.users

    def test_allocated_by_others_as_we_would_have(self) -> None:
        scene = Scene()
        scene.transport.script(ALLOCATE, scene.by_others(taken(["q"]), status=True))
        scene.reserve()
        assert scene.users == ["q", "p"]

    def test_a_claim_that_others_deallocated_is_not_reserved(self) -> None:
        scene = Scene(claim("gpu", allocated=["n/gpu-0"], metadata={"finalizers": [FINALIZER]}))
        scene.transport.script(ALLOCATE, scene.by_others({"status": {"allocation": None}}, status=True))
        with pytest.raises(WriteRefusedError, match="claim gpu was deallocated meanwhile"):
            scene.reserve()

    def test_a_claim_that_is_being_deleted_is_not_allocated(self) -> None:
        scene = Scene(claim("gpu", metadata={"finalizers": ["x/y"]}))

        async def delete() -> None:
            await scene.api.delete(CLAIMS, KEY)

        scene.transport.script(ALLOCATE, Fault(before=delete))
        with pytest.raises(WriteRefusedError, match="claim gpu is being deleted"):
            scene.reserve()
        assert scene.device is None

    def test_a_claim_that_is_gone_is_not_protected(self) -> None:
        scene = Scene()

        async def delete() -> None:
            await scene.api.delete(CLAIMS, KEY)

        scene.transport.script(PROTECT, Fault(before=delete))
        with pytest.raises(WriteRefusedError, match="claim ns/gpu is gone"):
            scene.reserve()

    def test_deleted_and_made_again(self) -> None:
        scene = Scene()

        async def again() -> None:
            await scene.api.delete(CLAIMS, KEY)
            await scene.api.create(CLAIMS, claim("gpu"))

        scene.transport.script(PROTECT, Fault(before=again))
        with pytest.raises(WriteRefusedError, match="claim gpu was deleted and made again"):
            scene.reserve()
        assert scene.device is None


class TestUnknownOutcomes:
    @pytest.mark.parametrize("call", [PROTECT, ALLOCATE])
    @pytest.mark.parametrize(
        "fault",
        [Fault(lost=True), Fault(reply_lost=True), Fault(reply=lambda _: {"kind": "Status"})],
        ids=["lost", "reply lost", "reply that is no claim"],
    )
    def test_the_claim_is_read_and_the_write_repeated_only_if_it_is_needed(self, call: str, fault: Fault) -> None:
        scene = Scene()
        scene.transport.script(call, fault)
        scene.reserve()
        assert (scene.device, scene.users) == ("gpu-0", ["p"])
        expected = 2 if fault.lost else 1
        assert scene.transport.calls.count(call) == expected

    @pytest.mark.parametrize("fault", [Fault(lost=True), Fault(reply_lost=True)], ids=["lost", "reply lost"])
    def test_an_allocation_that_others_may_have_undone_is_not_repeated(self, fault: Fault) -> None:
        """They may have given the device to another claim, which a process that stood still does not know yet."""
        scene = Scene()
        scene.transport.script(ALLOCATE, fault)
        gone = {"status": {"allocation": None, "reservedFor": None}, "metadata": {"labels": {"a": "b"}}}
        scene.transport.script(READ, scene.by_others(gone if fault.reply_lost else LABEL, status=fault.reply_lost))
        with pytest.raises(WriteRefusedError, match="claim ns/gpu was changed by others while it was written"):
            scene.reserve()
        assert scene.device is None
        assert scene.transport.calls.count(ALLOCATE) == 1
        assert scene.held == set()

    def test_if_it_can_not_be_read_what_is_in_flight_stays(self) -> None:
        scene = Scene()
        scene.transport.script(ALLOCATE, Fault(lost=True))
        scene.transport.script(READ, Fault(lost=True))
        with pytest.raises(OutcomeUnknownError):
            scene.reserve()
        assert scene.held == {"gpu-0"}

    @pytest.mark.parametrize("error", [FORBIDDEN, UnreachableError("GET", "connection refused")], ids=["403", "away"])
    @pytest.mark.parametrize("call", [READ, ALLOCATE], ids=["read", "write"])
    def test_a_later_refusal_does_not_tell_of_the_write_before_it(self, call: str, error: ApiError) -> None:
        scene = Scene()
        scene.transport.script(ALLOCATE, Fault(late=2))
        scene.transport.script(call, Fault(refused=error))

        async def unknown() -> None:
            reservation = scene.reservation()
            scene.state.assume(reservation.uid, reservation.allocation, scene.pod.uid)
            with pytest.raises(OutcomeUnknownError):
                await scene.writer.reserve(reservation)
            assert scene.held == {"gpu-0"}
            await virtualtime.elapse(3)

        virtualtime.run(unknown())
        assert (scene.device, scene.users, scene.state.snapshot.assumed.get("uid-gpu")) == ("gpu-0", ["p"], None)

    def test_a_claim_that_is_gone_can_not_be_written_any_more(self) -> None:
        scene = Scene()

        async def delete() -> None:
            await scene.api.patch(CLAIMS, KEY, {"metadata": {"finalizers": None}})
            await scene.api.delete(CLAIMS, KEY)

        scene.transport.script(ALLOCATE, Fault(lost=True))
        scene.transport.script(READ, Fault(before=delete))
        with pytest.raises(WriteRefusedError, match="claim ns/gpu is gone"):
            scene.reserve()
        assert scene.held == set()

    def test_no_connection_is_no_unknown_outcome(self) -> None:
        scene = Scene()
        scene.transport.script(ALLOCATE, Fault(refused=UnreachableError("PUT", "connection refused")))
        with pytest.raises(WriteRefusedError, match="claim ns/gpu: PUT: connection refused"):
            scene.reserve()
        assert scene.held == set()

    def test_until_the_claim_moves_on_without_it(self) -> None:
        scene = Scene()
        scene.transport.script(ALLOCATE, Fault(lost=True))
        scene.transport.script(READ, Fault(lost=True))
        with pytest.raises(OutcomeUnknownError):
            scene.reserve()
        virtualtime.run(scene.api.patch(CLAIMS, KEY, LABEL))
        assert not scene.state.snapshot.assumed
        assert scene.held == set()

    def test_an_unknown_finalizer_is_no_unknown_allocation(self) -> None:
        scene = Scene()
        scene.transport.script(PROTECT, Fault(lost=True))
        scene.transport.script(READ, Fault(lost=True))
        with pytest.raises(WriteRefusedError, match="outcome unknown"):
            scene.reserve()
        assert scene.held == set()


class Boom(BaseException):
    """Not even an Exception, as the end of a task is none."""


def boom(error: BaseException) -> Callable[[Any], Any]:
    def raise_it(_: Any) -> Any:
        raise error

    return raise_it


class TestAnyError:
    """Whatever an answer leads to: what is in flight ends when the claim's next revision is known."""

    @pytest.mark.parametrize("error", [RuntimeError("oops"), RecursionError(), Boom()], ids=repr)
    def test_of_the_allocation_is_an_unknown_outcome(self, error: BaseException) -> None:
        scene = Scene()
        scene.transport.script(ALLOCATE, Fault(reply=boom(error)))
        with pytest.raises(OutcomeUnknownError if isinstance(error, Exception) else Boom):
            scene.reserve()
        assert not scene.state.snapshot.assumed
        assert scene.held == {"gpu-0"}, "it was written, and the watch has shown it"

    @pytest.mark.parametrize("error", [RuntimeError("oops"), RecursionError(), Boom()], ids=repr)
    def test_of_the_finalizer_leaves_nothing_in_flight(self, error: BaseException) -> None:
        scene = Scene()
        scene.transport.script(PROTECT, Fault(reply=boom(error)))
        with pytest.raises(WriteRefusedError if isinstance(error, Exception) else Boom):
            scene.reserve()
        assert not scene.state.snapshot.assumed
        assert scene.held == set()

    @pytest.mark.parametrize("answer", [{}, {"metadata": {"name": 1}}, {"metadata": None}, {"spec": []}])
    def test_an_answer_that_is_no_claim_is_an_unknown_outcome(self, answer: RawObject) -> None:
        scene = Scene()
        scene.transport.script(ALLOCATE, Fault(reply=lambda _: answer))
        scene.transport.script(READ, Fault(reply=lambda _: answer))
        with pytest.raises(OutcomeUnknownError):
            scene.reserve()
        assert not scene.state.snapshot.assumed

    def test_a_pod_that_is_none_is_an_unknown_outcome(self) -> None:
        scene = Scene()
        scene.transport.script("get pods", Fault(reply=lambda _: {"metadata": {"name": 1}}))
        with pytest.raises(OutcomeUnknownError, match=r"metadata\.name"):
            virtualtime.run(scene.writer.fence(scene.pod))


class TestDroppedFields:
    """An API server drops the fields of a feature gate that is off, and does not say so."""

    @pytest.mark.parametrize(
        ("more", "field", "gate"),
        [
            ({"share_id": "s", "consumed_capacity": {"m": Quantity.from_int(1)}}, "shareID", "DRAConsumableCapacity"),
            ({"binding_conditions": ("a",)}, "bindingConditions", "DRADeviceBindingConditions"),
            ({"admin_access": True}, "adminAccess", "DRAAdminAccess"),
        ],
    )
    def test_then_the_allocation_is_taken_back(self, more: dict[str, Any], field: str, gate: str) -> None:
        scene = Scene()
        labels = {ADMIN_LABEL: "true"}
        virtualtime.run(scene.api.create(NAMESPACES, {"metadata": {"name": KEY.namespace, "labels": labels}}))
        scene.writer = Writer(_Dropping(scene.api), scene.state, lambda: NOW)
        with pytest.raises(WriteRefusedError, match=rf"dropped .*{field} \(feature gate {gate}"):
            scene.reserve(allocation(**more))
        assert (scene.device, scene.users, scene.held) == (None, [], set())


class _Dropping(Transport):
    """In front of an API server that knows nothing of a device but its name."""

    async def update_status(self, resource: Resource, obj: RawObject) -> RawObject:
        for result in obj["status"].get("allocation", {"devices": {"results": []}})["devices"]["results"]:
            for name in set(result) - {"request", "driver", "pool", "device"}:
                del result[name]
        return await super().update_status(resource, obj)


def begun(scene: Scene, name: str) -> asyncio.Task[int]:
    """A bind of a pod begins to reserve the claim, which it has assumed."""
    found = replace(scene.reservation(), pod=scene.state.snapshot.pods[ObjectKey("ns", name)])
    scene.state.assume(found.uid, found.allocation, found.pod.uid)
    return asyncio.create_task(scene.writer.reserve(found))


def test_the_devices_stay_taken_while_another_bind_still_waits_to_write_them() -> None:
    async def story(scene: Scene) -> None:
        scene.transport.script(PROTECT, Fault(seconds=1, refused=FORBIDDEN), Fault(seconds=9))
        first = begun(scene, "p")
        await virtualtime.elapse(0.1)
        second = begun(scene, "q")
        await virtualtime.elapse(5)
        assert isinstance(first.exception(), WriteRefusedError)
        assert scene.held == {"gpu-0"}
        await second

    scene = Scene(None, pod("q", "gpu"))
    virtualtime.run(story(scene))
    assert scene.users == ["q"]


async def held_up(scene: Scene) -> asyncio.Task[Any]:
    """Somebody releases the claim, which takes long; until then, no bind writes it."""
    scene.transport.script(READ, Fault(seconds=9))
    releasing = asyncio.create_task(scene.writer.release(scene.pod, [scene.reservation()]))
    await virtualtime.elapse(0.1)
    return releasing


def test_a_bind_that_ends_while_it_waits_leaves_nothing_assumed() -> None:
    async def story(scene: Scene) -> None:
        releasing = await held_up(scene)
        waiting = begun(scene, "p")
        await virtualtime.elapse(0.1)
        assert scene.held == {"gpu-0"}
        waiting.cancel()
        await asyncio.wait([waiting])
        assert scene.held == set()
        await releasing

    virtualtime.run(story(Scene()))


def test_a_bind_that_ends_while_it_waits_leaves_the_devices_to_another_one_that_waits() -> None:
    async def story(scene: Scene) -> None:
        releasing = await held_up(scene)
        first, second = begun(scene, "p"), begun(scene, "q")
        await virtualtime.elapse(0.1)
        second.cancel()
        await asyncio.wait([second])
        assert [each.pod_uid for each in scene.state.snapshot.assumed.values()] == ["uid-p"]
        await asyncio.gather(releasing, first)

    scene = Scene(None, pod("q", "gpu"))
    virtualtime.run(story(scene))
    assert scene.users == ["p"]


def test_a_bind_that_ends_while_it_waits_leaves_the_devices_to_the_one_that_writes() -> None:
    async def story(scene: Scene) -> None:
        scene.transport.script(PROTECT, Fault(seconds=5))
        writing = begun(scene, "p")
        await virtualtime.elapse(0.1)
        waiting = begun(scene, "q")
        await virtualtime.elapse(0.1)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert [each.pod_uid for each in scene.state.snapshot.assumed.values()] == ["uid-p"]
        await writing

    scene = Scene(None, pod("q", "gpu"))
    virtualtime.run(story(scene))
    assert (scene.users, scene.held) == (["p"], {"gpu-0"})


def test_a_bind_that_ends_while_it_waits_drops_nothing_that_was_written() -> None:
    """The watch does not show the allocation yet. If it were dropped, another claim would get the device."""

    async def story(scene: Scene) -> None:
        watch = Lagging(scene.state)
        scene.api.follow(watch)
        watch.is_behind = True
        scene.transport.script(PROTECT, Fault(seconds=1))
        writing = begun(scene, "p")
        await virtualtime.elapse(0.1)
        releasing, waiting = await held_up(scene), begun(scene, "q")
        await virtualtime.elapse(2)
        assert writing.done()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not scene.state.snapshot.claims[KEY].claim.allocation
        assert scene.held == {"gpu-0"}
        releasing.cancel()
        await asyncio.wait([releasing])

    scene = Scene(None, pod("q", "gpu"))
    scene.state = ClusterState()
    scene.writer = Writer(scene.transport, scene.state, lambda: NOW)
    virtualtime.run(story(scene))


def test_a_reservation_whose_bind_has_left_is_not_written_by_the_next_bind() -> None:
    async def story(scene: Scene) -> None:
        scene.transport.script(PROTECT, Fault(seconds=1), Fault(seconds=9))
        scene.transport.script(ALLOCATE, Fault(seconds=1), Fault(seconds=9))
        first = begun(scene, "p")
        await virtualtime.elapse(0.1)
        batch = [begun(scene, "q"), begun(scene, "r")]
        await virtualtime.elapse(4)
        for each in reversed(batch):
            each.cancel()
        await asyncio.gather(first, *batch, return_exceptions=True)
        await begun(scene, "s")

    scene = Scene(None, *(pod(name, "gpu") for name in "qrs"))
    virtualtime.run(story(scene))
    assert scene.users == ["p", "s"]
