"""Pods with negotiated claims that lack CPU: preempt asks their controllers, because filter was never asked about them.

kube-scheduler asks filter about nodes with enough CPU only. After a restart between filter and preempt, the answers of
controllers are forgotten as well.
"""

from collections.abc import Mapping

from extender.cluster.objects.pods import GROUP, GROUP_SIZE, parse_pod
from extender.framework.service import Service
from extender.framework.victims import Victims
from extender.framework.wire import PreemptArgs
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from extender.tools.fairness import QUICK_SECONDS
from tests.extender.plugins.negotiation.scenes import LICENSE, Scene, TimedScene, now, pods
from tests.extender.plugins.negotiation.test_slow_controllers import Slow
from tests.kit.clusters import Object, pod, request
from tests.kit.controllers import Licenses
from tests.kit.virtualtime import in_virtual_time

VICTIMS: list[Object] = [pod("v", on="n", priority=-1), pod("w", on="m", priority=-1)]
OFFERED = {"n": Victims(("uid-v",)), "m": Victims(("uid-w",))}


async def preempt(
    scene: Scene, name: str = "p", offered: Mapping[str, Victims] = OFFERED, by: Service | None = None
) -> Mapping[str, Victims]:
    """The victims that preempt leaves to a scheduler that would evict one on each node."""
    asking = parse_pod(await scene.cluster.api.get(PODS, ObjectKey("ns", name)))
    return await (by or scene.service).preempt(PreemptArgs(asking, offered))


async def test_the_controller_of_a_pod_is_asked_if_filter_was_not() -> None:
    scene = Scene(*pods("p"), *VICTIMS)
    assert await preempt(scene) == OFFERED


async def test_nobody_is_evicted_where_the_controller_refuses_the_node() -> None:
    scene = Scene(*pods("p"), *VICTIMS, licenses=Licenses(refuses={"n": "it is elsewhere"}))
    assert list(await preempt(scene)) == ["m"]
    scene.licenses.left = 0
    scene.seconds += 10
    assert await preempt(scene) == {}


async def test_a_process_that_starts_between_filter_and_preempt_asks_again() -> None:
    scene = Scene(*pods("p"), *VICTIMS)
    await scene.filter("p")
    after, _ = scene.second()
    assert await preempt(scene, by=after) == OFFERED


async def test_a_controller_that_has_just_answered_is_not_asked_twice() -> None:
    scene = Scene(*pods("p"), *VICTIMS)
    await scene.filter("p")
    assert await preempt(scene) == OFFERED
    assert len(scene.licenses.questions) == 1


async def test_the_answer_about_nodes_with_enough_cpu_is_kept() -> None:
    """Filter was asked about one node, and preempt about the other."""
    scene = Scene(*pods("p"), *VICTIMS, licenses=Licenses(refuses={"n": "it is elsewhere"}))
    await scene.filter("p", "n")
    assert list(await preempt(scene, offered={"m": OFFERED["m"]})) == ["m"]
    assert {each.name for each in scene.licenses.questions[-1].nodes} == {"n", "m"}


@in_virtual_time
async def test_a_scheduler_waits_for_a_slow_controller_as_long_as_the_budget_lets_it() -> None:
    names = [f"p{number}" for number in range(10)]
    scene = TimedScene(*pods(*names), *VICTIMS, licenses=Slow(left=20, seconds=0.5))
    assert await preempt(scene, names[0]) == OFFERED
    began = now()
    for name in names:
        await preempt(scene, name)
    assert now() - began <= 1.0 + 10 * QUICK_SECONDS


@in_virtual_time
async def test_a_controller_that_is_too_slow_for_the_budget_has_answered_when_the_scheduler_comes_again() -> None:
    scene = TimedScene(*pods("p"), *VICTIMS, licenses=Slow(left=1, seconds=1.9))
    assert await preempt(scene) == {}, "the scheduler waits for one second at most"
    await scene.turns(70.0)
    assert await preempt(scene) == OFFERED


async def test_a_gang_is_planned_once_its_controller_has_answered_about_all_its_pods() -> None:
    gang = pods("g0", "g1", requests=(LICENSE, request("gpu")))
    for each in gang[::2]:
        each["metadata"]["annotations"] = {GROUP: "g", GROUP_SIZE: "2"}
    scene = Scene(*gang, *VICTIMS, licenses=Licenses(left=2))
    assert await preempt(scene, "g0") == {}, "nothing is known yet of the other pod"
    nodes = [*await preempt(scene, "g1"), *await preempt(scene, "g0")]
    assert sorted(nodes) == ["m", "n"], "one node each, because each node has one GPU"
