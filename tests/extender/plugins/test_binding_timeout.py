"""Pods whose claims are not ready, or void: rejected with one reason; claims are given back when all is lost."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from allocator import Features
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.events import Note
from extender.framework.bind_errors import BindError
from extender.framework.filter import FilterResult, filter_nodes
from extender.framework.task import Found
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from extender.plugins.binding_conditions import BindingTimeout
from extender.tools.faults import Faults
from tests.kit import virtualtime
from tests.kit.binders import BINDING_TIMEOUT, binder_over, unheard
from tests.kit.clusters import DRIVER, claim, device_class, local_slice, node, pod, solver
from tests.kit.servers.memory import NOW, NOW_TEXT, Transport, memory_api, writes

READY, BROKEN = "example.com/ready", "example.com/broken"
KEY = ObjectKey("ns", "p")


def conditional(*, users: tuple[str, ...] = ("p",), at: str = "n") -> RawObject:
    """A claim that is allocated on a node, and whose device is not ready."""
    obj = claim("a", allocated=[f"{at}/gpu-0"], at=at, users=users)
    allocation = obj["status"]["allocation"]
    allocation["allocationTimestamp"] = NOW_TEXT
    allocation["devices"]["results"][0] |= {"bindingConditions": [READY], "bindingFailureConditions": [BROKEN]}
    return obj


class Scene:
    """Nodes n and m, the pod p, and everybody who looks after it."""

    def __init__(self, *objects: RawObject) -> None:
        nodes = [node("n"), node("m"), local_slice("n", 2), local_slice("m", 2), device_class()]
        self.api = memory_api(*nodes, *objects)
        self.state = ClusterState()
        self.api.follow(self.state)
        self.transport = Transport(self.api)
        self.now = NOW
        self.told: list[tuple[str, str]] = []
        double_allocations = unheard()
        binder = binder_over(self.transport, self.state, now=lambda: self.now, double_allocations=double_allocations)
        self.patience = BindingTimeout(
            self.state, Features(), binder, double_allocations, lambda: self.now, self._tell, Faults()
        )

    def _tell(self, pod: Pod, note: Note) -> None:
        assert pod.key == KEY
        self.told.append((note.reason, note.text))

    def filter(self) -> FilterResult:
        """Filter the pod, as the service does."""
        asking = self.state.snapshot.pods[KEY]
        result = filter_nodes(asking, ["n", "m"], self.state.snapshot, solver())
        if not result.passed:
            self.patience.rejected(asking)
        return result

    def look(self) -> None:
        async def main() -> None:
            await self.patience.tick()
            await virtualtime.elapse(10)

        virtualtime.run(main())

    def report(self, condition: str) -> None:
        conditions = [{"type": condition, "status": "True", "message": "said the driver"}]
        device = {"driver": DRIVER, "pool": "n", "device": "gpu-0", "conditions": conditions}
        virtualtime.run(self.api.patch_status(CLAIMS, ObjectKey("ns", "a"), {"status": {"devices": [device]}}))

    @property
    def conditions(self) -> list[str]:
        """The messages of the pod's conditions."""
        found: RawObject = virtualtime.run(self.api.get(PODS, KEY))
        return [each["message"] for each in found["status"].get("conditions", [])]

    @property
    def status(self) -> dict[str, Any]:
        found: RawObject = virtualtime.run(self.api.get(CLAIMS, ObjectKey("ns", "a")))
        return dict(found.get("status") or {})


REASON = "claim a waits until its devices are ready"


def test_while_it_waits_all_nodes_are_rejected_with_one_reason() -> None:
    scene = Scene(conditional(), pod("p", "a"))
    assert scene.filter().unresolvable.in_words() == {"n": REASON, "m": REASON}
    scene.look()
    assert writes(scene.transport.calls) == []


def test_when_it_is_ready_only_the_nodes_of_the_claim_pass() -> None:
    scene = Scene(conditional(), pod("p", "a"))
    scene.filter()
    scene.report(READY)
    result = scene.filter()
    assert (list(result.passed), result.unresolvable.in_words()) == (
        ["n"],
        {"m": "claim a is allocated for other nodes"},
    )
    scene.look()
    assert writes(scene.transport.calls) == []


def test_where_the_feature_is_off_nobody_waits() -> None:
    scene = Scene(conditional(), pod("p", "a"))
    off = solver(features=Features(binding_conditions=False))
    result = filter_nodes(scene.state.snapshot.pods[KEY], ["n", "m"], scene.state.snapshot, off)
    assert list(result.passed) == ["n"]


@pytest.mark.parametrize("users", [("p",), ()], ids=["reserved for the pod", "for nobody"])
def test_what_fails_is_given_back_and_the_pod_may_go_anywhere(users: tuple[str, ...]) -> None:
    scene = Scene(conditional(users=users), pod("p", "a"))
    scene.filter()
    scene.report(BROKEN)
    assert scene.filter().unresolvable.in_words() == {"n": REASON, "m": REASON}
    scene.look()
    assert not scene.status.get("allocation")
    assert scene.told == [
        ("DevicesNotReady", f"claim a: {BROKEN} of {DRIVER}/n/gpu-0: said the driver"),
    ]
    assert list(scene.filter().passed) == ["n", "m"]


def bind_fails(scene: Scene) -> None:
    scene.patience.on_bind_failed("uid-p", "n", BindError(f"waiting for {READY}"))


def is_found(scene: Scene) -> None:
    snapshot = scene.state.snapshot
    assert scene.patience.on_found(snapshot.pods[KEY], snapshot) is Found.KNOWN


@pytest.mark.parametrize("learn", [bind_fails, is_found])
def test_a_pod_that_filter_was_not_asked_about_again_here_is_looked_after(learn: Callable[[Scene], None]) -> None:
    """Its scheduler has asked another replica, which is late and does not know the allocation; or a process starts."""
    scene = Scene(conditional(), pod("p", "a"))
    learn(scene)
    scene.look()
    assert scene.status["allocation"]
    scene.report(BROKEN)
    scene.look()
    assert not scene.status.get("allocation")


def test_when_time_is_up_though_nothing_happens() -> None:
    scene = Scene(conditional(), pod("p", "a"))
    scene.filter()
    scene.now += BINDING_TIMEOUT
    scene.look()
    assert scene.status["allocation"]
    scene.now += timedelta(seconds=1)
    scene.look()
    assert not scene.status.get("allocation")
    lapsed = f"claim a: binding timeout after 600 s of waiting for {READY} of {DRIVER}/n/gpu-0"
    assert scene.told == [("DevicesNotReady", lapsed)]
    assert scene.conditions == [f"{lapsed}: claims are released as of revision 7"]


def test_a_claim_that_others_use_stays_with_them() -> None:
    scene = Scene(conditional(users=("p", "q")), pod("p", "a"), pod("q", "a"))
    scene.filter()
    scene.report(BROKEN)
    scene.look()
    assert [user["name"] for user in scene.status["reservedFor"]] == ["q"]
    assert scene.status["allocation"]


def test_a_pod_that_is_gone_needs_no_patience() -> None:
    scene = Scene(conditional(), pod("p", "a"))
    scene.filter()
    virtualtime.run(scene.api.delete(PODS, KEY))
    scene.now += 2 * BINDING_TIMEOUT
    scene.look()
    assert writes(scene.transport.calls) == []


def test_an_allocation_that_is_void_is_given_back() -> None:
    other = claim("other", allocated=["n/gpu-0"], at="n", users=("q",))
    scene = Scene(claim("a", allocated=["n/gpu-0"], at="n", users=("p",)), other, pod("p", "a"))
    void = "the allocation of claim a is void: others hold its devices"
    assert scene.filter().unresolvable.in_words() == {"n": void, "m": void}
    scene.look()
    assert not scene.status.get("allocation")
    assert scene.told == [("ClaimsGivenBack", void)]
    assert list(scene.filter().passed) == ["n", "m"]


def test_what_only_others_use_is_theirs_to_give_back() -> None:
    other = claim("other", allocated=["n/gpu-0"], at="n", users=("q",))
    scene = Scene(claim("a", allocated=["n/gpu-0"], at="n", users=("r",)), other, pod("p", "a"))
    assert not scene.filter().passed
    scene.look()
    assert (scene.told, writes(scene.transport.calls)) == ([], [])
