"""The condition that says why a pod waits: when it is written, how often, and when it ends."""

from collections.abc import Sequence

import pytest

from allocator.tools import printable
from extender.cluster.objects.pods import WAITS
from extender.kube.api import ObjectKey, RawObject, timestamp
from extender.kube.resources import PODS
from extender.plugins.requeue.unserved import DELAY_SECONDS, PAUSE_SECONDS, PodConditions
from tests.kit.clusters import NOW, Cluster, Object, pod
from tests.kit.servers.memory import Transport

LINE = "no device has model b200 (a100 4)"
OTHER_LINE = "all 4 devices with model a100 are in use"


class Scene:
    """A cluster, the task, and the time."""

    def __init__(self, *objects: Object) -> None:
        self.now = 0.0
        self.cluster = Cluster.of(*objects)
        self.transport = Transport(self.cluster.api)
        self.start()

    def start(self) -> None:
        """A process begins."""
        self.conditions = PodConditions(self.cluster.state, self.transport, lambda: NOW, lambda: self.now)

    def want(self, name: str, line: str = LINE, namespace: str = "ns") -> None:
        found = self.cluster.state.snapshot.pods[ObjectKey(namespace, name)]
        self.conditions.want(found, printable(line))

    async def after(self, seconds: float) -> None:
        self.now += seconds
        await self.conditions.tick()

    async def bind(self, name: str) -> None:
        key = ObjectKey("ns", name)
        await self.cluster.api.bind_pod(key, "a", uid=self.cluster.state.snapshot.pods[key].uid)

    async def condition(self, name: str, namespace: str = "ns") -> RawObject | None:
        found = await self.cluster.api.get(PODS, ObjectKey(namespace, name))
        conditions: Sequence[RawObject] = (found.get("status") or {}).get("conditions") or ()
        return next((each for each in conditions if each["type"] == WAITS), None)

    async def said(self, name: str, namespace: str = "ns") -> tuple[str, str]:
        """Status and message."""
        found = await self.condition(name, namespace)
        return ("", "") if found is None else (found["status"], found["message"])


async def test_it_has_the_line_of_the_pod() -> None:
    scene = Scene(pod("p", "c"))
    scene.want("p")
    await scene.after(DELAY_SECONDS)
    assert await scene.condition("p") == {
        "type": WAITS,
        "status": "False",
        "reason": "DevicesUnavailable",
        "message": LINE,
        "lastTransitionTime": timestamp(NOW),
    }


async def test_a_pod_without_a_status_gets_one() -> None:
    made = pod("p", "c")
    made.pop("status", None)
    scene = Scene(made)
    scene.want("p")
    await scene.after(DELAY_SECONDS)
    assert await scene.said("p") == ("False", LINE)


async def test_other_conditions_stay() -> None:
    made = pod("p", "c")
    made["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]}
    scene = Scene(made)
    scene.want("p")
    await scene.after(DELAY_SECONDS)
    found = await scene.cluster.api.get(PODS, ObjectKey("ns", "p"))
    assert [each["type"] for each in found["status"]["conditions"]] == ["PodScheduled", WAITS]


async def test_a_pod_whose_line_changes_gets_the_last_one_once_it_has_lasted() -> None:
    """Each write costs a try and a backoff, so none is for a line that lasts less than a minute."""
    scene = Scene(pod("p", "c"))
    scene.want("p")
    await scene.after(DELAY_SECONDS - 1)
    scene.want("p", OTHER_LINE)
    await scene.after(DELAY_SECONDS - 1)
    assert await scene.condition("p") is None
    await scene.after(1)
    assert await scene.said("p") == ("False", OTHER_LINE)
    scene.want("p")
    await scene.after(DELAY_SECONDS - 1)
    assert await scene.said("p") == ("False", OTHER_LINE)
    await scene.after(1)
    assert await scene.said("p") == ("False", LINE)


async def test_a_line_that_is_there_already_is_not_written_again() -> None:
    scene = Scene(pod("p", "c"))
    scene.want("p")
    await scene.after(DELAY_SECONDS)
    before = await scene.cluster.api.get(PODS, ObjectKey("ns", "p"))
    scene.start()
    scene.want("p")
    await scene.after(DELAY_SECONDS)
    assert await scene.cluster.api.get(PODS, ObjectKey("ns", "p")) == before


async def test_pods_are_written_one_after_the_other_in_turns_of_their_namespaces() -> None:
    """Each write makes the scheduler try that pod once more."""
    other = pod("q", "c")
    other["metadata"]["namespace"] = "other"
    names = [f"p{number}" for number in range(3)]
    scene = Scene(*(pod(name, "c") for name in names), other)
    for name in names:
        scene.want(name)
    scene.want("q", namespace="other")
    seen = []
    scene.now += DELAY_SECONDS - PAUSE_SECONDS
    for _ in range(4):
        await scene.after(PAUSE_SECONDS / 2)
        await scene.after(PAUSE_SECONDS / 2)
        told = [name for name in names if (await scene.said(name))[0]]
        seen.append((len(told), (await scene.said("q", "other"))[0]))
    assert seen == [(1, ""), (1, "False"), (2, "False"), (3, "False")]


async def test_it_ends_once_the_pod_has_a_node() -> None:
    scene = Scene(pod("p", "c"))
    scene.want("p")
    await scene.after(DELAY_SECONDS)
    await scene.bind("p")
    await scene.after(DELAY_SECONDS)
    assert await scene.said("p") == ("True", "the pod has node a")


async def test_it_ends_also_if_another_process_has_written_it() -> None:
    scene = Scene(pod("p", "c"))
    scene.want("p")
    await scene.after(DELAY_SECONDS)
    scene.start()
    await scene.bind("p")
    await scene.after(DELAY_SECONDS)
    assert await scene.said("p") == ("True", "the pod has node a")


async def test_it_ends_also_if_another_process_has_written_it_since_this_one_began() -> None:
    scene = Scene(pod("p", "c"))
    late = PodConditions(scene.cluster.state, scene.transport, lambda: NOW, lambda: scene.now)
    await late.tick()
    scene.want("p")
    await scene.after(DELAY_SECONDS)
    late.on_passed(scene.cluster.state.snapshot.pods[ObjectKey("ns", "p")])
    await scene.bind("p")
    await late.tick()
    assert await scene.said("p") == ("True", "the pod has node a")


@pytest.mark.parametrize("is_bound", [True, False], ids=["bound", "passed"])
async def test_a_pod_that_finds_a_node_first_gets_none(is_bound: bool) -> None:
    scene = Scene(pod("p", "c"))
    scene.want("p")
    if is_bound:
        await scene.bind("p")
    else:
        scene.conditions.on_passed(scene.cluster.state.snapshot.pods[ObjectKey("ns", "p")])
    await scene.after(DELAY_SECONDS)
    assert await scene.condition("p") is None


async def test_a_pod_whose_gate_is_lifted_gets_none_of_the_line_that_it_had_there() -> None:
    scene = Scene(pod("p", "c"))
    scene.want("p")
    scene.conditions.on_held(scene.cluster.state.snapshot.pods[ObjectKey("ns", "p")], ())
    await scene.after(DELAY_SECONDS)
    assert await scene.condition("p") is None


async def test_a_pod_that_is_made_again_gets_none_of_the_one_before() -> None:
    scene = Scene(pod("p", "c"))
    scene.want("p")
    await scene.cluster.api.delete(PODS, ObjectKey("ns", "p"))
    again = pod("p", "c")
    again["metadata"]["uid"] = "another"
    scene.cluster.load(again)
    await scene.after(DELAY_SECONDS)
    assert await scene.condition("p") is None
