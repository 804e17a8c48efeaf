"""Gangs that lack CPU: their schedulers evict others for all pods of a gang, or for none."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

import pytest

from extender.framework.victims import Victims
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from extender.plugins.gangs.task import SHOWN_SECONDS
from extender.plugins.preemption.plugin import choose_victims
from tests.extender.plugins.gangs.scenes import Scene, member, members, nodes
from tests.kit.clusters import claim_template, pod
from tests.kit.virtualtime import in_virtual_time

T = TypeVar("T")


def victims_on(*names: str) -> Mapping[str, Victims]:
    """Where kube-scheduler would evict others, one pod on each node, for want of CPU."""
    return {name: Victims((f"uid-cpu-{name}",)) for name in names}


async def rest() -> None:
    """Others go on, until they wait."""
    for _ in range(100):
        await asyncio.sleep(0)


class Preempting(Scene):
    """A scene with a scheduler that asks preempt."""

    async def preempt(self, name: str, *names: str) -> list[str]:
        """The nodes on which the pod's scheduler may evict others."""
        await self.task.before_preempt(self.known(name), names)
        return sorted(choose_victims(self.known(name), victims_on(*names), self.cluster.state.snapshot, self.solver))


async def test_a_gang_that_lacks_cpu_is_planned_before_a_pod_is_evicted_for_it() -> None:
    scene = Preempting(*nodes("abc"), *members("x", 2))
    first = await scene.preempt("x0", "a", "b")
    kept = {name: scene.known(name).kept.node for name in ("x0", "x1")}
    assert sorted(kept.values()) == ["a", "b"], "not c, where nothing helps"
    assert first == [kept["x0"]], "the gang is planned before the answer"
    for name, there in kept.items():
        assert await scene.preempt(name, "a", "b") == [there]
    await scene.schedule()
    assert len(scene.bound()) == 2


async def test_no_pod_is_evicted_for_a_gang_that_finds_no_place_as_a_whole() -> None:
    scene = Preempting(*nodes("ab"), *members("x", 3))
    for _ in range(3):
        assert [await scene.preempt(f"x{number}", "a", "b") for number in range(3)] == [[]] * 3
        await scene.turns()
    assert not any(scene.known(f"x{number}").kept.node for number in range(3))


async def test_the_pause_of_a_gang_is_not_that_of_another_one_which_gets_its_name() -> None:
    """The plan would come too late: no write wakes a scheduler whose pods lack CPU."""
    scene = Preempting(*nodes("ab"), *members("x", 3))
    for _ in range(2):
        assert [await scene.preempt(f"x{number}", "a", "b") for number in range(3)] == [[]] * 3
    await scene.end("x0", "x1", "x2")
    for each in (*member("y0", "x", 2), *member("y1", "x", 2)):
        scene.cluster.load(each)
    assert len(await scene.preempt("y0", "a", "b")) == 1


async def test_a_gang_is_planned_at_once_when_its_last_claim_has_come_since_it_was_asked_about() -> None:
    *there, late = members("x", 2)
    scene = Preempting(*nodes("ab"), *there)
    assert await scene.preempt("x0", "a", "b") == []
    scene.cluster.load(late)
    assert len(await scene.preempt("x1", "a", "b")) == 1


async def test_a_gang_is_planned_at_once_when_its_last_pod_names_its_claim_since_it_was_asked_about() -> None:
    raw, made = member("x1", "x", 2)
    raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "x1", "uid": "uid-x1", "controller": True}
    ]
    scene = Preempting(*nodes("ab"), claim_template("gpu"), *member("x0", "x", 2), raw, made)
    assert await scene.preempt("x0", "a", "b") == []
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "x1-c"}]}
    await scene.cluster.api.patch_status(PODS, ObjectKey("ns", "x1"), {"status": status})
    assert len(await scene.preempt("x1", "a", "b")) == 1


async def test_nodes_that_need_no_evictions_go_first() -> None:
    scene = Preempting(*nodes("abcd"), *members("x", 2))
    for name in ("x0", "x1"):
        scene.filter(name, names="cd")
        await scene.preempt(name, "a", "b")
    await scene.turns()
    assert sorted(scene.known(name).kept.node for name in ("x0", "x1")) == ["c", "d"]


async def test_what_is_kept_waits_until_the_evicted_pods_are_gone() -> None:
    """Meanwhile the scheduler asks about other nodes: the kept node has no CPU yet."""
    scene = Preempting(*nodes("abc"), *members("x", 2))
    for name in ("x0", "x1"):
        await scene.preempt(name, "a", "b")
    await scene.turns()
    for _ in range(5):
        for name in ("x0", "x1"):
            assert await scene.preempt(name, "a", "b")
            scene.filter(name, names="c")
        await scene.turns()
    await scene.schedule()
    assert len(scene.bound()) == 2


async def test_a_gang_whose_kept_node_gets_no_room_is_planned_anew() -> None:
    scene = Preempting(*nodes("abc"), *members("x", 1), pod("other"))
    await scene.preempt("x0", "a")
    await scene.turns()
    assert scene.known("x0").kept.node == "a"
    for _ in range(2):
        scene.filter("x0", names="c")
        await scene.preempt("x0", "b")
        await scene.turns(2)
    assert scene.known("x0").kept.node == "c"


async def test_a_gang_that_is_planned_before_an_answer_is_not_planned_again_by_the_turn_that_goes_on() -> None:
    gates: list[asyncio.Event] = []

    async def wait(work: Callable[[], T]) -> T:
        gates.append(asyncio.Event())
        if len(gates) <= 2:
            await gates[-1].wait()
        return work()

    scene = Preempting(*nodes("abcd"), *members("x", 2, priority=9), *members("y", 2))
    scene.off_loop = wait
    scene.start()
    for name in ("x0", "x1", "y0", "y1"):
        scene.filter(name)
    turn = asyncio.create_task(scene.task.tick())
    await rest()
    answer = asyncio.create_task(scene.task.before_preempt(scene.known("y0"), "abcd"))
    await rest()
    gates[0].set()
    await rest()
    assert len(gates) == 2, "one plan of each gang"
    gates[1].set()
    await asyncio.gather(turn, answer, *scene.task.unfinished)
    await scene.turns()
    assert len({scene.known(name).kept.node for name in ("x0", "x1", "y0", "y1")}) == 4


async def test_a_plan_that_a_turn_makes_is_waited_for_before_the_answer() -> None:
    """Only the scheduler's five-minute flush would ask again."""
    begun, gate = asyncio.Event(), asyncio.Event()

    async def wait(work: Callable[[], T]) -> T:
        begun.set()
        await gate.wait()
        return work()

    scene = Preempting(*nodes("ab"), *members("x", 2))
    scene.off_loop = wait
    scene.start()
    for name in ("x0", "x1"):
        scene.filter(name, names="ab")
    turn = asyncio.create_task(scene.task.tick())
    await begun.wait()
    answer = asyncio.create_task(scene.preempt("x0", "a", "b"))
    await rest()
    assert not answer.done()
    gate.set()
    assert await answer == [scene.known("x0").kept.node]
    await asyncio.gather(turn, *scene.task.unfinished)


@in_virtual_time
async def test_a_plan_that_takes_long_holds_up_the_scheduler_once_and_not_for_each_member() -> None:
    """Pods of other namespaces wait behind each call of preempt."""
    gate = asyncio.Event()

    async def wait(work: Callable[[], T]) -> T:
        await gate.wait()
        return work()

    scene = Preempting(*nodes("abc"), *members("x", 3))
    scene.off_loop = wait
    scene.start()
    for name in ("x0", "x1", "x2"):
        scene.filter(name, names="abc")
    turn = asyncio.create_task(scene.task.tick())
    await rest()
    began = asyncio.get_running_loop().time()
    for _ in range(2):
        assert [await scene.preempt(name, "a", "b", "c") for name in ("x0", "x1", "x2")] == [[]] * 3
    assert asyncio.get_running_loop().time() - began == pytest.approx(SHOWN_SECONDS)
    gate.set()
    await asyncio.gather(turn, *scene.task.unfinished)
    assert await scene.preempt("x0", "a", "b", "c") == [scene.known("x0").kept.node], "it waits for the next one again"
