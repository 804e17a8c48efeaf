"""Writes of allocations without an answer: their devices come back, also if their pod is never bound."""

from collections.abc import Callable

import pytest

from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import CLAIMS, NODES, PODS
from extender.plugins.unknown_writes import UNKNOWN_SECONDS, UnknownWrites
from extender.tools.faults import Faults
from tests.extender.framework.bind.scenes import ALLOCATE, GET_CLAIM, PROTECT, Scene
from tests.kit import virtualtime
from tests.kit.clusters import claim, pod
from tests.kit.servers.memory import Fault, writes

LOST = Fault(lost=True)


class Unanswered(Scene):
    """A bind has written an allocation, perhaps: it has no answer, and the claim could not be read."""

    def __init__(self, fault: Fault = LOST) -> None:
        super().__init__(claim("a"), pod("p", "a"))
        self.clock = virtualtime.StillClock()
        writer, is_binding = self.binder.claims.writer, self.binder.is_binding
        self.task = UnknownWrites(self.state, writer, is_binding, Faults(), self.clock)
        self.transport.script(ALLOCATE, fault)
        self.transport.script(GET_CLAIM, LOST)
        assert self.run(self.bind()) == [f"{GET_CLAIM}: outcome unknown: timed out"]
        virtualtime.run(self.task.tick())
        self.transport.calls.clear()

    def passes(self, seconds: float) -> None:
        """Time passes, and the task has a turn."""
        self.clock.now += seconds
        virtualtime.run(self.task.tick())


def _pod_is_deleted(scene: Unanswered) -> None:
    virtualtime.run(scene.api.delete(PODS, ObjectKey("ns", "p")))


def _node_is_deleted(scene: Unanswered) -> None:
    virtualtime.run(scene.api.delete(NODES, ObjectKey("", "n")))


@pytest.mark.parametrize("event", [_pod_is_deleted, _node_is_deleted])
def test_devices_come_back_if_the_pod_is_not_bound_again(event: Callable[[Unanswered], None]) -> None:
    scene = Unanswered()
    event(scene)
    scene.passes(UNKNOWN_SECONDS - 1)
    assert (scene.held, writes(scene.transport.calls)) == ({"n/gpu-0"}, [])
    scene.passes(1)
    assert (scene.held, writes(scene.transport.calls)) == (set(), [PROTECT])
    assert scene.get("a")["metadata"]["finalizers"] == []
    scene.passes(0)
    assert scene.task.idle_seconds == float("inf")


def test_a_write_that_arrives_later_is_refused() -> None:
    scene = Unanswered()
    old = {**scene.get("a"), "status": {"allocation": {"devices": {"results": []}}}}
    scene.passes(UNKNOWN_SECONDS)
    with pytest.raises(ApiError, match="modified"):
        virtualtime.run(scene.api.update_status(CLAIMS, old))
    assert scene.held == set()


def test_what_was_written_all_the_same_stays() -> None:
    scene = Unanswered(Fault(reply_lost=True))
    scene.passes(UNKNOWN_SECONDS)
    assert (scene.devices("a"), scene.held) == (["n/gpu-0"], {"n/gpu-0"})
    assert scene.transport.calls == []


def test_nothing_is_written_while_only_the_watch_is_late() -> None:
    scene = Scene(claim("a"), pod("p", "a"))
    clock = virtualtime.StillClock()
    task = UnknownWrites(scene.state, scene.binder.claims.writer, scene.binder.is_binding, Faults(), clock)
    scene.watch.is_behind = True
    scene.run(scene.bind())
    virtualtime.run(task.tick())
    scene.transport.calls.clear()
    clock.now += UNKNOWN_SECONDS
    virtualtime.run(task.tick())
    assert scene.transport.calls == [GET_CLAIM]
    assert scene.devices("a") == ["n/gpu-0"]


def test_it_is_tried_again_if_it_fails() -> None:
    scene = Unanswered()
    scene.transport.script(PROTECT, LOST)
    scene.passes(UNKNOWN_SECONDS)
    assert scene.held == {"n/gpu-0"}
    scene.passes(UNKNOWN_SECONDS)
    assert scene.held == set()


def test_a_bind_that_runs_finds_out_by_itself() -> None:
    scene = Unanswered()
    scene.clock.now += UNKNOWN_SECONDS
    scene.transport.script(ALLOCATE, Fault(before=scene.task.tick))
    assert scene.run(scene.bind()) == [""]
    assert (scene.devices("a"), scene.node_of("p")) == (["n/gpu-0"], "n")
    assert writes(scene.transport.calls).count(PROTECT) == 0
