"""Bind: idempotent, one at a time per pod, checked against other writers, and taken back when it fails."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from extender.cluster.api import CLAIMS, CLASSES, NODES, PODS, ApiError, ObjectKey, RawObject
from extender.cluster.objects import parse_pod
from extender.cluster.reservation import FINALIZER
from extender.cluster.state import ClusterState, Event
from extender.cluster.writer import ATTEMPTS, Writer
from extender.verbs.bind import Binder, BindError, ClashError
from extender.verbs.clashes import Clashes
from tests.extender import virtualtime
from tests.extender.apis import NOW, Fault, Transport, memory_api, writes
from tests.extender.clusters import (
    DRIVER,
    claim,
    device_class,
    local_slice,
    network_slice,
    node,
    pod,
    request,
    solver,
)

PROTECT, ALLOCATE, BIND = "update resourceclaims", "update_status resourceclaims", "bind pods"
GET_CLAIM = "get resourceclaims"
FORBIDDEN = ApiError(403, "Forbidden", "not allowed")
DEADLINE = 4.0


class Lagging:
    """A watch that is behind: it keeps what it hears of claims until it is told to go on."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._kept: list[Event] = []
        self.is_behind = False

    def apply(self, event: Event) -> None:
        if self.is_behind and event.resource == CLAIMS:
            self._kept.append(event)
        else:
            self._state.apply(event)

    def replace(self, resource: Any, objects: Any, at: int) -> bool:
        return self._state.replace(resource, objects, at)

    def catch_up(self) -> None:
        self.is_behind = False
        while self._kept:
            self._state.apply(self._kept.pop(0))


class Scene:
    """Nodes n and m with two devices each, and a binder over an API server."""

    now = NOW

    def __init__(self, *objects: RawObject) -> None:
        nodes = [node("n"), node("m"), local_slice("n", 2), local_slice("m", 2), device_class()]
        self.api = memory_api(*nodes, *objects)
        self.state = ClusterState()
        self.watch = Lagging(self.state)
        self.api.follow(self.watch)
        self.transport = Transport(self.api)
        writer = Writer(self.transport, self.state, lambda: self.now)
        self.counted: list[None] = []
        self.told: list[tuple[str, str]] = []
        self.clashes = Clashes(
            count=lambda: self.counted.append(None), tell=lambda pod, note: self.told.append((pod.name, note.reason))
        )
        self.binder = Binder(self.state, writer, solver(), deadline=DEADLINE, clashes=self.clashes)

    async def bind(self, name: str = "p", node_name: str = "n", **more: Any) -> None:
        await self.binder.bind(ObjectKey("ns", name), more.pop("uid", f"uid-{name}"), node_name, **more)

    def run(self, *binds: Coroutine[Any, Any, None]) -> list[str]:
        """Run calls at the same time; their errors, empty for those that succeed."""

        async def answer(bind: Coroutine[Any, Any, None]) -> str:
            try:
                await bind
            except BindError as error:
                return str(error)
            return ""

        async def all_of_them() -> list[str]:
            return await asyncio.gather(*map(answer, binds))

        return virtualtime.run(all_of_them())

    def get(self, name: str) -> RawObject:
        return virtualtime.run(self.api.get(CLAIMS, ObjectKey("ns", name)))

    def devices(self, name: str) -> list[str]:
        allocation = self.get(name).get("status", {}).get("allocation") or {"devices": {"results": []}}
        return [f"{result['pool']}/{result['device']}" for result in allocation["devices"]["results"]]

    def users(self, name: str) -> list[str]:
        return [consumer["name"] for consumer in self.get(name).get("status", {}).get("reservedFor", [])]

    def node_of(self, name: str) -> str | None:
        found: RawObject = virtualtime.run(self.api.get(PODS, ObjectKey("ns", name)))
        bound: str | None = found["spec"].get("nodeName")
        return bound

    @property
    def held(self) -> set[str]:
        pools = self.state.snapshot.usage.pools.items()
        return {f"{pool.pool}/{device}" for pool, devices in pools for device in devices}


def action(what: Callable[[], Any]) -> Fault:
    """Something that happens just before a call arrives."""

    async def before() -> None:
        result = what()
        if asyncio.iscoroutine(result):
            await result

    return Fault(before=before)


class TestSuccess:
    def test_claims_are_allocated_and_reserved_then_the_pod_is_bound(self) -> None:
        scene = Scene(claim("a"), claim("b"), pod("p", "a", "b"))
        assert scene.run(scene.bind()) == [""]
        assert scene.transport.calls == [PROTECT, ALLOCATE, PROTECT, ALLOCATE, BIND]
        assert scene.devices("a") + scene.devices("b") == ["n/gpu-0", "n/gpu-1"]
        assert (scene.users("a"), scene.node_of("p")) == (["p"], "n")
        assert scene.held == {"n/gpu-0", "n/gpu-1"}
        assert not scene.state.snapshot.in_flight

    def test_again_is_a_success_without_writes(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.run(scene.bind())
        scene.transport.calls.clear()
        assert scene.run(scene.bind()) == [""]
        assert scene.transport.calls == []

    def test_a_pod_without_claims_is_only_bound(self) -> None:
        scene = Scene(pod("p"))
        assert scene.run(scene.bind(seen=parse_pod(pod("p")))) == [""]
        assert scene.transport.calls == [BIND]

    def test_a_pod_that_nobody_has_seen_is_asked_for(self) -> None:
        scene = Scene(pod("p"))
        assert scene.run(scene.bind()) == [""]
        assert scene.transport.calls == ["get pods", BIND]

    def test_pods_without_claims_are_bound_though_the_cluster_is_not_known(self) -> None:
        scene = Scene(pod("p"))
        scene.state.doubt(NODES, "nothing heard for 30 s")
        assert scene.run(scene.bind(node_name="somewhere")) == [""]

    def test_pods_that_share_a_claim_are_bound_at_once(self) -> None:
        """Each writes to the claim what the others have not seen yet: they take turns instead of giving up."""
        names = [f"p{number}" for number in range(3 * ATTEMPTS)]
        scene = Scene(claim("a", allocated=["n/gpu-0"]), *(pod(name, "a") for name in names))
        assert scene.run(*(scene.bind(name) for name in names)) == [""] * len(names)
        assert sorted(scene.users("a")) == sorted(names)
        assert scene.transport.calls.count(ALLOCATE) == len(names)

    def test_a_shared_claim_follows_its_allocation(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"), pod("q", "a"))
        assert scene.run(scene.bind("p"), scene.bind("q")) == ["", "claim a is being allocated for another pod"]
        assert scene.run(scene.bind("q", "m")) == ["node m: claim a is allocated for other nodes"]
        assert scene.run(scene.bind("q")) == [""]
        assert scene.users("a") == ["p", "q"]

    def test_two_pods_at_once_do_not_get_one_device(self) -> None:
        scene = Scene(claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
        assert scene.run(scene.bind("p"), scene.bind("q")) == ["", ""]
        assert {*scene.devices("a"), *scene.devices("b")} == {"n/gpu-0", "n/gpu-1"}

    def test_what_another_bind_has_in_flight_is_taken(self) -> None:
        names = ["a", "b", "c"]
        scene = Scene(*map(claim, names), *(pod(f"pod-{name}", name) for name in names))
        answers = scene.run(*(scene.bind(f"pod-{name}") for name in names))
        assert answers == ["", "", "node n: no free device for request gpu"]


class TestRefused:
    """Nothing is written, and nothing is left in flight."""

    @pytest.mark.parametrize(
        ("there", "arguments", "message"),
        [
            ([pod("p", "a")], {}, "claim a does not exist"),
            ([claim("a"), pod("p", "a")], {"node_name": "x"}, "node x: node not yet known"),
            ([claim("a"), pod("p", "a", on="m")], {}, "pod ns/p is bound to node m already"),
            ([claim("a"), pod("p", "a", deleting=True)], {}, "pod ns/p is being deleted"),
            ([], {}, "pod ns/p is gone"),
            ([pod("p")], {"uid": "x"}, "pod ns/p was deleted and made again: its uid is uid-p, not x"),
            (
                [claim("a", allocated=["m/gpu-0"], at="m"), pod("p", "a")],
                {},
                "node n: claim a is allocated for other nodes",
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_with_a_reason(self, there: list[RawObject], arguments: dict[str, Any], message: str) -> None:
        scene = Scene(*there)
        assert scene.run(scene.bind(**arguments)) == [message]
        assert writes(scene.transport.calls) == []
        assert not scene.state.snapshot.in_flight

    def test_what_does_not_fit(self) -> None:
        busy = claim("busy", allocated=["n/gpu-0", "n/gpu-1"], at="n")
        scene = Scene(busy, claim("a"), pod("p", "a"))
        assert scene.run(scene.bind()) == ["node n: no free device for request gpu"]

    def test_while_the_cluster_is_not_known(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.state.doubt(NODES, "nothing heard for 30 s")
        assert scene.run(scene.bind()) == ["not ready: nodes: nothing heard for 30 s"]

    def test_a_class_that_does_not_exist(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        virtualtime.run(scene.api.delete(CLASSES, ObjectKey("", "gpu")))
        assert scene.run(scene.bind()) == ["device class gpu does not exist"]


class TestUndo:
    def test_the_second_claim_is_refused(self) -> None:
        scene = Scene(claim("a"), claim("b"), pod("p", "a", "b"))
        scene.transport.script(ALLOCATE, Fault(), Fault(refused=FORBIDDEN))
        assert scene.run(scene.bind()) == ["claim ns/b: not allowed"]
        assert (scene.devices("a"), scene.users("a"), scene.devices("b")) == ([], [], [])
        assert (scene.held, scene.node_of("p")) == (set(), None)

    def test_claims_that_were_never_begun_are_not_in_flight(self) -> None:
        scene = Scene(claim("a"), claim("b"), pod("p", "a", "b"))
        scene.transport.script(PROTECT, Fault(refused=FORBIDDEN))
        assert scene.run(scene.bind()) == ["claim ns/a: not allowed"]
        assert scene.held == set()

    def test_the_binding_is_refused(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.transport.script(BIND, action(lambda: scene.api.delete(PODS, ObjectKey("ns", "p"))))
        assert scene.run(scene.bind()) == ["pod ns/p is gone"]
        assert (scene.devices("a"), scene.users("a"), scene.held) == ([], [], set())

    def test_a_shared_claim_stays_with_the_others(self) -> None:
        scene = Scene(claim("a", allocated=["n/gpu-0"], users=["q"]), pod("p", "a"))
        scene.transport.script(BIND, Fault(refused=FORBIDDEN))
        assert scene.run(scene.bind()) == ["pod ns/p: not allowed"]
        assert (scene.devices("a"), scene.users("a")) == (["n/gpu-0"], ["q"])

    def test_an_allocation_that_was_there_stays(self) -> None:
        scene = Scene(claim("a", allocated=["n/gpu-0"]), pod("p", "a"))
        scene.transport.script(BIND, Fault(refused=FORBIDDEN))
        scene.run(scene.bind())
        assert (scene.devices("a"), scene.users("a")) == (["n/gpu-0"], [])

    def test_one_that_an_earlier_bind_of_the_pod_left_does_not(self) -> None:
        scene = Scene(claim("a", allocated=["n/gpu-0"], users=["p"]), pod("p", "a"))
        scene.transport.script(BIND, Fault(refused=FORBIDDEN))
        scene.run(scene.bind())
        assert (scene.devices("a"), scene.users("a")) == ([], [])

    def test_a_binding_that_landed_though_it_was_refused_is_a_success(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.transport.script(BIND, Fault(lost=True), Fault(refused=FORBIDDEN))
        landed = action(lambda: scene.api.bind_pod(ObjectKey("ns", "p"), "n", uid="uid-p"))
        scene.transport.script("get pods", Fault(), landed)
        assert scene.run(scene.bind()) == [""]
        assert (scene.devices("a"), scene.users("a")) == (["n/gpu-0"], ["p"])

    def test_not_if_the_pod_was_bound_elsewhere(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.transport.script(BIND, action(lambda: scene.api.bind_pod(ObjectKey("ns", "p"), "m", uid="uid-p")))
        bound = "pod ns/p is bound to node m already; claims are not released: the pod is bound to node m"
        assert scene.run(scene.bind()) == [bound]
        assert scene.users("a") == ["p"]

    def test_that_fails_is_told(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.transport.script(BIND, Fault(refused=FORBIDDEN))
        scene.transport.script(GET_CLAIM, Fault(lost=True))
        expected = f"pod ns/p: not allowed; claim ns/a is not released: {GET_CLAIM}: outcome unknown: timed out"
        assert scene.run(scene.bind()) == [expected]
        assert scene.held == {"n/gpu-0"}


class TestUnknownOutcomes:
    def test_of_a_claim_nothing_is_undone_and_the_next_bind_goes_on(self) -> None:
        scene = Scene(claim("a"), claim("b"), pod("p", "a", "b"))
        scene.transport.script(ALLOCATE, Fault(), Fault(lost=True))
        scene.transport.script(GET_CLAIM, Fault(lost=True))
        assert scene.run(scene.bind()) == [f"{GET_CLAIM}: outcome unknown: timed out"]
        assert scene.held == {"n/gpu-0", "n/gpu-1"}
        assert scene.run(scene.bind(node_name="m")) == ["node m: claim a is allocated for other nodes"]
        assert scene.run(scene.bind()) == [""]
        assert scene.devices("b") == ["n/gpu-1"]
        assert not scene.state.snapshot.in_flight

    def test_of_the_binding_nothing_is_undone_and_the_next_bind_goes_on(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.transport.script(BIND, *[Fault(lost=True)] * ATTEMPTS)
        assert scene.run(scene.bind()) == [f"{BIND}: outcome unknown: timed out"]
        assert (scene.devices("a"), scene.users("a")) == (["n/gpu-0"], ["p"])
        scene.transport.calls.clear()
        assert scene.run(scene.bind()) == [""]
        assert writes(scene.transport.calls) == [BIND]


class TestRepeatedCalls:
    def test_wait_for_the_answer_of_the_first(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.transport.script(ALLOCATE, Fault(seconds=1))
        assert scene.run(scene.bind(), scene.bind(), scene.bind()) == ["", "", ""]
        assert scene.transport.calls == [PROTECT, ALLOCATE, BIND]

    def test_share_its_error(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.transport.script(ALLOCATE, Fault(seconds=1, refused=FORBIDDEN))
        assert scene.run(scene.bind(), scene.bind()) == ["claim ns/a: not allowed"] * 2

    def test_for_another_node_come_after_it(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.transport.script(ALLOCATE, Fault(seconds=1))
        assert scene.run(scene.bind(), scene.bind(node_name="m")) == ["", "pod ns/p is bound to node n already"]

    def test_for_another_node_after_a_failure_have_a_chance_of_their_own(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.transport.script(ALLOCATE, Fault(seconds=1, refused=FORBIDDEN))
        assert scene.run(scene.bind(), scene.bind(node_name="m")) == ["claim ns/a: not allowed", ""]
        assert scene.devices("a") == ["m/gpu-0"]

    def test_the_first_goes_on_when_its_caller_has_gone(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.transport.script(ALLOCATE, Fault(seconds=1))

        async def hang_up() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await scene.bind()
            await scene.bind()

        assert scene.run(hang_up()) == [""]
        assert scene.transport.calls == [PROTECT, ALLOCATE, BIND]


class TestDeadline:
    def test_no_binding_is_posted_after_it(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.transport.script(ALLOCATE, Fault(seconds=DEADLINE + 1))

        async def late() -> float:
            called = asyncio.get_running_loop().time()
            with pytest.raises(BindError, match="still running"):
                await scene.bind()
            answered = asyncio.get_running_loop().time() - called
            with pytest.raises(BindError, match="out of time: the claims are reserved, the pod is not bound yet"):
                await scene.bind()
            return answered

        assert virtualtime.run(late()) == DEADLINE
        assert scene.node_of("p") is None
        assert scene.users("a") == ["p"]
        assert scene.run(scene.bind()) == [""]

    def test_the_watch_is_behind_until_after_it(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.watch.is_behind = True
        assert scene.run(scene.bind()) == ["out of time: what others have written to claims is not known yet"]
        assert (scene.users("a"), scene.node_of("p"), scene.held) == (["p"], None, {"n/gpu-0"})
        scene.watch.catch_up()
        assert scene.run(scene.bind()) == [""]


def stolen(scene: Scene, device: str) -> Callable[[], Any]:
    """Another writer allocates the claim "other" while we write."""
    status = claim("other", allocated=[device], users=["q"])["status"]
    return lambda: scene.api.patch_status(CLAIMS, ObjectKey("ns", "other"), {"status": status})


class TestOtherWriters:
    """The API server does not stop two claims from holding one device: who is second gives it back."""

    def test_second(self) -> None:
        scene = Scene(claim("a"), claim("other"), pod("p", "a"))
        scene.transport.script(ALLOCATE, action(stolen(scene, "n/gpu-0")))
        (answer,) = scene.run(scene.bind())
        assert answer.startswith("claim ns/a was allocated after others: device held twice: claim ns/other, ns/a")
        assert (scene.devices("a"), scene.users("a"), scene.node_of("p")) == ([], [], None)
        assert scene.devices("other") == ["n/gpu-0"]
        assert scene.run(scene.bind()) == [""]
        assert scene.devices("a") == ["n/gpu-1"]

    def test_is_an_error_of_its_own(self) -> None:
        scene = Scene(claim("a"), claim("other"), pod("p", "a"))
        scene.transport.script(ALLOCATE, action(stolen(scene, "n/gpu-0")))

        async def clash() -> None:
            with pytest.raises(ClashError):
                await scene.bind()

        virtualtime.run(clash())
        assert scene.held == {"n/gpu-0"}

    def test_first(self) -> None:
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
            await asyncio.sleep(1)
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


def test_the_finalizer_protects_what_is_allocated() -> None:
    scene = Scene(claim("a"), pod("p", "a"))
    scene.run(scene.bind())
    assert scene.get("a")["metadata"]["finalizers"] == [FINALIZER]


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
        assert scene.run(scene.bind()) == [f"claim ns/a: no longer {scene.WAITING}" if is_over else scene.WAITING]
        assert scene.devices("a") == ([] if is_over else ["fabric/gpu-0"])

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
            scene.binder.give_back(snapshot.pods[ObjectKey("ns", "p")], claims)
            await asyncio.sleep(10)

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

    def test_others_keep_it(self) -> None:
        scene = Scene(claim("a", allocated=["n/gpu-0"], users=["p", "q"]), pod("p", "a"), pod("q", "a"))
        self.give_back(scene, "a")
        assert (scene.devices("a"), scene.users("a")) == (["n/gpu-0"], ["q"])

    def test_not_while_the_pod_is_being_bound(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.transport.script(BIND, Fault(seconds=1))

        async def both() -> None:
            bind = asyncio.create_task(scene.bind())
            await asyncio.sleep(0.5)
            snapshot = scene.state.snapshot
            scene.binder.give_back(snapshot.pods[ObjectKey("ns", "p")], [snapshot.claims[ObjectKey("ns", "a")]])
            await bind

        assert scene.run(both()) == [""]
        assert (scene.devices("a"), scene.node_of("p")) == (["n/gpu-0"], "n")

    def test_a_bind_comes_after_it(self) -> None:
        scene = Scene(claim("a", allocated=["n/gpu-0"], users=["p"]), pod("p", "a"))
        scene.transport.script(GET_CLAIM, Fault(seconds=1))

        async def both() -> None:
            snapshot = scene.state.snapshot
            scene.binder.give_back(snapshot.pods[ObjectKey("ns", "p")], [snapshot.claims[ObjectKey("ns", "a")]])
            await scene.bind(node_name="m")

        assert scene.run(both()) == [""]
        assert (scene.devices("a"), scene.node_of("p")) == (["m/gpu-0"], "m")
