"""What preempt offers to a scheduler, within the limits of evictions, and what became of it."""

from collections.abc import Sequence
from dataclasses import replace

from extender.cluster.objects.pods import Pod
from extender.cluster.writes.writer import Writer
from extender.framework.bind_errors import BindError, ControllerRefusesError
from extender.framework.victims import Victims
from extender.kube.api import ObjectKey, UnreachableError
from extender.kube.resources import PODS
from extender.plugins.preemption.eviction_limits import (
    FIRST_PAUSE_SECONDS,
    LOOKING_SECONDS,
    MOST_REFUSALS,
    EvictionCaps,
    EvictionLimits,
)
from extender.plugins.preemption.scheduler_evictions import BINDING_SECONDS, OFFERED_SECONDS, SchedulerEvictions
from extender.tools.offload import at_once
from tests.extender.plugins.preemption.scenes import MANY, full, runs, waits
from tests.kit.clusters import NOW, Object, solver
from tests.kit.servers.memory import Fault, Transport

WOKEN = "dra-extender/DevicesChanged"


def elsewhere(objects: Sequence[Object]) -> Sequence[Object]:
    """The objects in another namespace."""
    return [each | {"metadata": each["metadata"] | {"namespace": "other"}} for each in objects]


class Scene:
    """Two nodes whose devices are in use; the pods p and q wait, and r in another namespace.

    Attributes:
        now: seconds.
        transport: of the task to the API server.
    """

    def __init__(self, caps: EvictionCaps = MANY) -> None:
        held: list[Object] = [*runs("v", "a/gpu-0", on="a"), *runs("w", "b/gpu-0", on="b")]
        self.cluster = full("ab", *waits("p"), *waits("q"), *elsewhere(waits("r")), *held)
        self.now = 0.0
        timed = replace(solver(), clock=lambda: self.now)
        self.limits = EvictionLimits(caps, timed.clock)
        self.transport = Transport(self.cluster.api)
        writer = Writer(self.transport, self.cluster.state, lambda: NOW)
        self.task = SchedulerEvictions(self.cluster.state, self.limits, timed, writer, at_once)

    def pod(self, name: str) -> Pod:
        return self.cluster.state.snapshot.pods[ObjectKey("ns", name)]

    async def allowed(self, name: str, *nodes: str) -> Sequence[str]:
        """The nodes where a scheduler may evict the pod that holds the device, and a pod that needs none."""
        held = {"a": "uid-v", "b": "uid-w"}
        offered = {each: Victims((held[each], "uid-cpu")) for each in nodes}
        return [*await self.task.allowed(self.pod(name), offered)]

    async def evict(self, name: str, node: str, victim: str) -> None:
        """The scheduler evicts the pod, and nominates the other one."""
        nominated = {"status": {"nominatedNodeName": node}}
        await self.cluster.api.patch_status(PODS, ObjectKey("ns", name), nominated)
        await self.task.tick()
        await self.cluster.api.delete(PODS, ObjectKey("ns", victim))
        await self.cluster.settle()
        await self.task.tick()

    def pause(self, name: str) -> float:
        return self.limits.pause(self.pod(name), self.cluster.state.snapshot)

    async def is_woken(self, name: str) -> bool:
        raw = await self.cluster.api.get(PODS, ObjectKey("ns", name))
        return any(each["type"] == WOKEN for each in raw["status"].get("conditions", []))


async def test_evictions_count_once_the_scheduler_has_nominated_the_pod() -> None:
    scene = Scene(EvictionCaps(9, 9, 3))
    assert await scene.allowed("p", "a", "b") == ["a", "b"]
    assert await scene.allowed("q", "b") == [], "two pods may be evicted for p"
    scene.now = OFFERED_SECONDS
    await scene.task.tick()
    assert await scene.allowed("q", "b") == ["b"], "nobody was evicted for p"
    await scene.evict("q", "b", "w")
    scene.now += OFFERED_SECONDS
    assert await scene.allowed("p", "a") == [], "two pods were evicted for q"
    scene.now += 60.0
    assert await scene.allowed("p", "a") == ["a"]


async def test_a_pod_that_had_to_wait_is_tried_again() -> None:
    scene = Scene(EvictionCaps(9, 9, 0))
    assert await scene.allowed("p", "a") == []
    await scene.task.tick()
    assert not await scene.is_woken("p")
    scene.now = LOOKING_SECONDS
    await scene.task.tick()
    assert await scene.is_woken("p")


async def test_a_pod_whose_wake_up_is_refused_is_woken_later() -> None:
    scene = Scene(EvictionCaps(9, 9, 0))
    assert await scene.allowed("p", "a") == []
    scene.transport.script("patch_status pods", Fault(refused=UnreachableError("PATCH p", "no connection")))
    scene.now = LOOKING_SECONDS
    await scene.task.tick()
    assert not await scene.is_woken("p")
    scene.now += LOOKING_SECONDS
    await scene.task.tick()
    assert await scene.is_woken("p")


async def test_a_pod_that_passes_while_another_one_is_woken_is_left_alone() -> None:
    scene = Scene(EvictionCaps(9, 9, 0))
    other = scene.cluster.state.snapshot.pods[ObjectKey("other", "r")]
    await scene.allowed("p", "a")
    assert not await scene.task.allowed(other, {"a": Victims(("uid-v",))})

    async def passes() -> None:
        scene.task.on_passed(other)

    scene.transport.script("get pods", Fault(before=passes))
    scene.now = LOOKING_SECONDS
    await scene.task.tick()
    assert scene.transport.calls == ["get pods", "patch_status pods"]


async def test_a_pod_that_is_not_bound_in_time_has_evicted_in_vain() -> None:
    scene = Scene()
    assert await scene.allowed("p", "a") == ["a"]
    await scene.evict("p", "a", "v")
    scene.now = BINDING_SECONDS - 1
    await scene.task.tick()
    assert scene.pause("q") == 0.0
    scene.now = BINDING_SECONDS
    await scene.task.tick()
    assert scene.pause("q") == FIRST_PAUSE_SECONDS
    assert await scene.allowed("q", "b") == []


async def test_a_pod_that_is_gone_has_evicted_in_vain() -> None:
    scene = Scene()
    await scene.allowed("p", "a")
    await scene.evict("p", "a", "v")
    await scene.cluster.api.delete(PODS, ObjectKey("ns", "p"))
    await scene.task.tick()
    assert scene.pause("q") == FIRST_PAUSE_SECONDS


async def test_a_pod_whose_binds_are_refused_has_evicted_in_vain() -> None:
    scene = Scene()
    await scene.allowed("p", "a")
    await scene.evict("p", "a", "v")
    for _ in range(MOST_REFUSALS):
        scene.task.on_bind_failed("uid-p", "a", BindError("out of time"))
        await scene.task.tick()
    assert scene.pause("q") == 0.0, "these may succeed later"
    for _ in range(MOST_REFUSALS):
        scene.task.on_bind_failed("uid-p", "a", ControllerRefusesError("node a: controller c: no"))
        await scene.task.tick()
    assert scene.pause("q") == FIRST_PAUSE_SECONDS
    scene.now = FIRST_PAUSE_SECONDS
    assert await scene.allowed("q", "b") == [], "the same victims on the same cause"


async def test_a_pod_that_is_bound_needs_no_pause() -> None:
    scene = Scene()
    await scene.allowed("p", "a")
    await scene.evict("p", "a", "v")
    await scene.cluster.api.bind_pod(ObjectKey("ns", "p"), "a", uid="uid-p")
    await scene.task.tick()
    scene.now = BINDING_SECONDS
    await scene.task.tick()
    assert scene.pause("q") == 0.0
