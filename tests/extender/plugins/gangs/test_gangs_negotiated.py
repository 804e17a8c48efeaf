"""Gangs whose pods need what a controller allocates: they notice when their controller accepts again."""

from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.kube.api import ObjectKey
from extender.plugins.gangs.task import ASKING_SECONDS
from tests.extender.plugins.negotiation.scenes import NAME, TimedScene, pods
from tests.kit.clusters import Object
from tests.kit.controllers import NO_LICENSE, Licenses
from tests.kit.virtualtime import in_virtual_time

GANG = ("g0", "g1", "g2")


def gang() -> list[Object]:
    """A gang of three pods, with a license each."""
    found = pods(*GANG)
    for each in found[::2]:
        each["metadata"]["annotations"] = {GROUP: "g", GROUP_SIZE: str(len(GANG))}
    return found


def is_kept(scene: TimedScene) -> bool:
    """Whether something is kept for each pod of the gang."""
    pods_there = scene.cluster.state.snapshot.pods
    return all(pods_there[ObjectKey("ns", name)].kept.node for name in GANG)


async def waiting_gang(quiet: float) -> TimedScene:
    """A gang whose controller has refused all its pods for a while, in a cluster in which nothing else happens."""
    scene = TimedScene(*gang(), licenses=Licenses(left=0))
    for name in GANG:
        await scene.filter(name)
    await scene.turns(ASKING_SECONDS + quiet)
    assert not is_kept(scene)
    return scene


@in_virtual_time
async def test_gang_notices_within_seconds_that_its_controller_accepts_again() -> None:
    scene = await waiting_gang(quiet=300.0)
    scene.licenses.left = len(GANG)
    await scene.turns(4.0)
    assert is_kept(scene)
    for name in GANG:
        passed = await scene.filter(name)
        assert len(passed.passed) == 1
        assert await scene.bind(name, passed.passed[0]) == ""


@in_virtual_time
async def test_single_pod_notices_as_quickly() -> None:
    scene = TimedScene(*pods("p"), licenses=Licenses(left=0))
    assert await scene.reasons("p") == [f"controller {NAME}: {NO_LICENSE}"]
    await scene.turns(300.0)
    scene.licenses.left = 1
    await scene.turns(4.0)
    assert await scene.woken("p")


@in_virtual_time
async def test_gang_is_not_planned_again_while_its_controller_refuses() -> None:
    scene = await waiting_gang(quiet=60.0)
    asked = len(scene.licenses.questions)
    await scene.turns(60.0)
    assert len(scene.licenses.questions) - asked <= 60
    assert not is_kept(scene)


@in_virtual_time
async def test_many_pods_that_wait_ask_their_controller_few_questions_and_notice_soon() -> None:
    names = [f"p{number}" for number in range(200)]
    scene = TimedScene(*pods(*names), licenses=Licenses(left=0))
    for name in names:
        await scene.filter(name)
    await scene.turns(120.0)
    asked = len(scene.licenses.questions)
    await scene.turns(60.0)
    assert len(scene.licenses.questions) - asked <= 60 * 8
    scene.licenses.left = len(names)
    await scene.turns(4.0)
    assert any([await scene.woken(name) for name in names])
    await scene.turns(10.0)
    assert all([await scene.woken(name) for name in names])
