"""Bind: idempotent, one at a time per pod, checked against other writers, and taken back when it fails."""

import asyncio
from typing import Any

import pytest

from extender.cluster.objects.pods import parse_pod
from extender.cluster.writes.pods import ATTEMPTS
from extender.framework.bind_errors import BindError
from extender.kube.api import ObjectKey, RawObject
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLASSES, NODES, PODS
from tests.extender.framework.bind.scenes import ALLOCATE, BIND, FORBIDDEN, GET_CLAIM, PROTECT, Scene, action
from tests.kit import virtualtime
from tests.kit.binders import DEADLINE
from tests.kit.clusters import claim, pod
from tests.kit.servers.memory import Fault, writes


class TestSuccess:
    def test_claims_are_allocated_and_reserved_then_the_pod_is_bound(self) -> None:
        scene = Scene(claim("a"), claim("b"), pod("p", "a", "b"))
        assert scene.run(scene.bind()) == [""]
        assert scene.transport.calls == [PROTECT, ALLOCATE, PROTECT, ALLOCATE, BIND]
        assert scene.devices("a") + scene.devices("b") == ["n/gpu-0", "n/gpu-1"]
        assert (scene.users("a"), scene.node_of("p")) == (["p"], "n")
        assert scene.held == {"n/gpu-0", "n/gpu-1"}
        assert not scene.state.snapshot.assumed

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
        """The first one writes, and one more write is for all that have waited meanwhile; nobody reads."""
        names = [f"p{number}" for number in range(3 * ATTEMPTS)]
        scene = Scene(claim("a", allocated=["n/gpu-0"]), *(pod(name, "a") for name in names))
        assert scene.run(*(scene.bind(name) for name in names)) == [""] * len(names)
        assert sorted(scene.users("a")) == sorted(names)
        assert scene.transport.calls.count(ALLOCATE) == 2
        assert GET_CLAIM not in scene.transport.calls

    def test_a_claim_has_256_places_and_the_others_are_told(self) -> None:
        there = [f"q{number}" for number in range(254)]
        names = [f"p{number}" for number in range(4)]
        scene = Scene(claim("a", allocated=["n/gpu-0"], users=there), *(pod(name, "a") for name in names))
        full = "claim a is reserved for 256 pods already"
        assert sorted(scene.run(*(scene.bind(name) for name in names))) == ["", "", full, full]
        assert len(scene.users("a")) == 256

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
        assert not scene.state.snapshot.assumed

    def test_what_does_not_fit(self) -> None:
        busy = claim("busy", allocated=["n/gpu-0", "n/gpu-1"], at="n")
        scene = Scene(busy, claim("a"), pod("p", "a"))
        assert scene.run(scene.bind()) == ["node n: no free device for request gpu"]

    def test_while_the_cluster_is_not_known(self) -> None:
        scene = Scene(claim("a"), pod("p", "a"))
        scene.state.doubt(NODES, "nothing heard for 30 s")
        assert scene.run(scene.bind()) == ["not ready: nothing heard for 30 s"]

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

    def test_an_allocation_is_undone_when_the_binding_is_refused(self) -> None:
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

    def test_an_undo_that_fails_is_told_in_the_error(self) -> None:
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
        assert not scene.state.snapshot.assumed

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

    def test_a_bind_for_another_node_waits_for_the_first(self) -> None:
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


def test_the_finalizer_protects_what_is_allocated() -> None:
    scene = Scene(claim("a"), pod("p", "a"))
    scene.run(scene.bind())
    assert scene.get("a")["metadata"]["finalizers"] == [FINALIZER]
