"""Background tasks that ask controllers: one that hangs holds up no turn, and no other controller."""

import asyncio

import pytest

from extender.cluster.objects.claims import MARK, MARK_FINALIZER
from extender.framework.task import ControllerWork
from extender.kube.api import ObjectKey, timestamp
from extender.kube.resources import LEASES
from extender.plugins.immediate_claims import IMMEDIATE_CLAIMS
from extender.plugins.negotiation.protocol import ALLOCATE, DEALLOCATE, UNSUITABLE_NODES
from extender.plugins.pinned_claims import PINNED_PODS
from extender.tools.faults import Faults
from tests.extender.framework.poison import Told
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, Scene, negotiated_class, pods
from tests.kit import virtualtime
from tests.kit.clusters import NOW, Object, claim, pinned, request
from tests.kit.controllers import Fault, Licenses
from tests.kit.virtualtime import in_virtual_time

OTHER = "other.example.com"


def immediate() -> Object:
    return claim("p-c", LICENSE, metadata={"annotations": {"dra-extender.dev/allocation-mode": "Immediate"}})


async def turn(scene: Scene, seconds: float = 3.0) -> None:
    """The background tasks have a turn, which ends at once."""
    scene.seconds += seconds
    await asyncio.wait_for(scene.service.background.tick(), 0.1)
    await virtualtime.elapse(1)


@pytest.mark.parametrize(
    ("objects", "lease"),
    [
        pytest.param([immediate()], IMMEDIATE_CLAIMS, id="immediate claim"),
        pytest.param([claim("p-c", LICENSE), pinned("p", "p-c", on="n")], PINNED_PODS, id="pinned pod"),
    ],
)
@in_virtual_time
async def test_turn_does_not_wait_for_an_allocation_and_the_lease_is_held_meanwhile(
    objects: list[Object], lease: ObjectKey
) -> None:
    scene, done = Scene(*objects), asyncio.Event()
    scene.licenses.faults[ALLOCATE] = [Fault(until=done)]
    for _ in range(10):
        await turn(scene)
    assert len(scene.licenses.asked(ALLOCATE)) == 1
    spec = (await scene.cluster.api.get(LEASES, lease))["spec"]
    assert spec["holderIdentity"]
    done.set()
    await virtualtime.elapse(1)
    await turn(scene)
    assert await scene.allocation() is not None
    assert len(scene.licenses.asked(ALLOCATE)) == 1


@in_virtual_time
async def test_turn_does_not_wait_for_the_question_about_nodes_and_asks_it_once() -> None:
    scene, done = Scene(*pods("p"), licenses=Licenses(left=0)), asyncio.Event()
    assert await scene.reasons() != []
    scene.licenses.faults[UNSUITABLE_NODES] = [Fault(until=done)]
    for _ in range(3):
        await turn(scene)
    assert len(scene.licenses.questions) == 2
    scene.licenses.left = 1
    done.set()
    for _ in range(2):
        await turn(scene, 0.2)
    assert await scene.woken()


@in_virtual_time
async def test_filter_does_not_ask_a_controller_that_was_away_before_it_has_answered_in_the_background() -> None:
    """The scheduler filters one pod at a time: each question to a controller that hangs would delay all pods."""
    scene = Scene(*pods("p", "q"))
    scene.licenses.faults[UNSUITABLE_NODES] = [Fault("no answer within 2 s")]
    waiting = await scene.reasons("p")
    scene.seconds += 20.0
    assert await scene.reasons("q") == waiting
    assert len(scene.licenses.questions) == 1
    for _ in range(2):
        await turn(scene)
    assert await scene.reasons("q") == []


@in_virtual_time
async def test_immediate_claim_asks_a_controller_that_was_away() -> None:
    scene = Scene(immediate())
    scene.licenses.faults[UNSUITABLE_NODES] = [Fault("no answer within 2 s")]
    for _ in range(10):
        await turn(scene)
    assert await scene.allocation() is not None


@in_virtual_time
async def test_simulation_asks_a_controller_that_was_away_after_its_pause() -> None:
    """A simulation has no background."""
    scene = Scene(*pods("p"))
    simulation = scene.replica(simulation=True)
    scene.licenses.faults[UNSUITABLE_NODES] = [Fault("no answer within 2 s")]
    assert await scene.reasons(by=simulation) != []
    assert await scene.reasons(by=simulation) != []
    assert len(scene.licenses.questions) == 1
    scene.seconds += 1.0
    assert await scene.reasons(by=simulation) == []


def left(name: str, controller: str) -> Object:
    """A claim that a killed process has left marked."""
    marked = {"annotations": {MARK: f"{controller} 1 {timestamp(NOW)}"}, "finalizers": [MARK_FINALIZER]}
    asked = LICENSE if controller == NAME else request("license", device_class="other")
    return claim(name, asked, metadata=marked)


@in_virtual_time
async def test_controller_that_hangs_holds_up_no_release_of_another() -> None:
    claims = [left(f"c{number:02}", NAME) for number in range(40)]
    other = negotiated_class("other", OTHER)
    scene = Scene(*claims, other, left("d", OTHER), others={OTHER: Licenses()})
    scene.licenses.faults[DEALLOCATE] = [Fault(until=asyncio.Event())] * 40
    await turn(scene)
    assert await scene.mark("d") == f"{OTHER} 2 released"
    assert len(scene.licenses.asked(DEALLOCATE)) == 16


@in_virtual_time
async def test_controller_that_is_away_is_asked_to_release_once_a_pause_and_not_for_each_claim() -> None:
    scene = Scene(*(left(f"c{number:02}", NAME) for number in range(40)))
    scene.licenses.faults[DEALLOCATE] = [Fault("no connection")] * 40
    await turn(scene)
    asked = len(scene.licenses.asked(DEALLOCATE))
    await turn(scene, 0.2)
    assert len(scene.licenses.asked(DEALLOCATE)) == asked


@in_virtual_time
async def test_controller_that_hangs_takes_no_room_of_another() -> None:
    work, done, told = ControllerWork[str](Faults(), most=2), asyncio.Event(), []

    async def wait() -> None:
        await done.wait()

    async def tell() -> None:
        told.append("b")

    for key in ("1", "2"):
        assert work.has_room(["a"])
        work.begin(key, key, ["a"], wait)
    assert not work.has_room(["a"])
    assert not work.has_room(["a", "b"])
    assert work.has_room(["b"])
    work.begin("3", "3", ["b"], tell)
    await virtualtime.elapse(1)
    assert (told, len(work)) == (["b"], 2)
    done.set()
    await virtualtime.elapse(1)
    assert work.has_room(["a"])


@in_virtual_time
async def test_work_that_fails_is_a_fault_of_its_object_and_makes_room() -> None:
    told = Told()

    async def fail() -> None:
        raise ZeroDivisionError("wrong")

    work = ControllerWork[str](Faults(told), most=1)
    work.begin("1", "claim ns/c", ["a"], fail)
    await virtualtime.elapse(1)
    assert (told.lines, len(work)) == (["claim ns/c: wrong"], 0)
