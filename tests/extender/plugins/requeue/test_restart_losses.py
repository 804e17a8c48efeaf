"""What a restart loses for good, and what that costs: the table of docs/reliability.md."""

from datetime import timedelta

from allocator import DeviceId
from extender.faces.assembly import Extender
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, EVENTS
from tests.extender.answers.observe.scenes import ask, items
from tests.extender.plugins.negotiation.scenes import Scene, pods
from tests.kit.clusters import DRIVER, GPU, NOW, Cluster, asking, claim, client_of, local_slice, node, pod
from tests.kit.virtualtime import in_virtual_time

WORLD = (GPU, *(each for name in ("n", "m") for each in (node(name), local_slice(name, 0))))
WAITING = (pod("p", "p-c"), claim("p-c"))


async def test_decisions_are_forgotten_and_a_pod_that_is_asked_about_is_decided_alike() -> None:
    cluster = Cluster.of(*WORLD, *WAITING)
    rejected, question = [], asking(pod("p", "p-c"), "n", "m")
    for _ in ("the first process", "the next one"):
        async with client_of(cluster.app()) as client:
            assert await items(client, "/decisions") == []
            await ask(client, "filter", question)
            rejected.append((await items(client, "/decisions"))[0]["rejected"])
    assert rejected[0] == rejected[1] != {}


async def test_holds_that_have_ended_are_forgotten_and_who_holds_a_device_is_known() -> None:
    held = claim("held", allocated=["x/gpu-0"], at="n", users=["u"])
    scene = Scene(
        held, claim("ended", allocated=["x/gpu-1"], at="n", users=["u"]), world=(GPU, node("n"), local_slice("x", 2))
    )
    await scene.service.background.tick()
    await scene.cluster.api.delete(CLAIMS, ObjectKey("ns", "ended"))
    scene.seconds += 10.0
    await scene.service.background.tick()
    devices = [DeviceId(DRIVER, "x", f"gpu-{number}") for number in range(2)]

    def known(by: Extender) -> list[int]:
        return [len(by.overview.history.of(each, scene.cluster.state.snapshot)) for each in devices]

    assert known(scene.extender) == [1, 1]
    after = scene.another()
    await after.service.background.tick()
    assert known(after) == [1, 0]
    assert after.overview.history.complete_after() == NOW + timedelta(seconds=scene.seconds)


@in_virtual_time
async def test_a_pod_that_still_waits_is_told_why_once_more() -> None:
    scene = Scene(*WAITING, world=WORLD)
    counts = []
    for service in (scene.service, scene.replica()):
        for _ in range(2):
            await scene.filter("p", by=service)
            await scene.tick(6.0, by=service)
        events = (await scene.cluster.api.list(EVENTS)).items
        counts.append(len([each for each in events if each["reason"] == "DevicesUnavailable"]))
    assert counts == [1, 2]


@in_virtual_time
async def test_controllers_are_asked_again() -> None:
    scene = Scene(*pods("p"))
    counts = []
    for service in (scene.service, scene.service, scene.replica()):
        assert (await scene.filter("p", by=service)).passed
        counts.append(len(scene.licenses.questions))
    assert counts == [1, 1, 2]
