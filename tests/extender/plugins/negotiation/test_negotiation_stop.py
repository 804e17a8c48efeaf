"""A stop of the process: what background tasks have begun with controllers comes to its end, or is handed over."""

import asyncio

import pytest

from extender.plugins.negotiation.protocol import ALLOCATE, DEALLOCATE
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, Scene, pods
from tests.kit import virtualtime
from tests.kit.clusters import claim
from tests.kit.controllers import Fault
from tests.kit.virtualtime import in_virtual_time

NOTHING = {"unfinished_binds": 0, "unfinished_tasks": 0}


async def releasing(scene: Scene, until: asyncio.Event) -> None:
    """A release is under way."""
    await scene.bind()
    scene.licenses.faults[DEALLOCATE] = [Fault(until=until)]
    await scene.end()
    await scene.tick()
    assert await scene.mark() == f"{NAME} 2 releasing"


@in_virtual_time
async def test_stop_waits_for_a_release_that_has_begun() -> None:
    scene, answers = Scene(*pods("p")), asyncio.Event()
    await releasing(scene, answers)
    stop = asyncio.create_task(scene.service.finish(10.0))
    await virtualtime.elapse(5)
    assert not stop.done()
    answers.set()
    assert await stop == NOTHING
    assert await scene.mark() == f"{NAME} 2 released"


@in_virtual_time
async def test_release_that_a_stop_has_cut_off_is_made_by_the_next_process() -> None:
    scene, loop = Scene(*pods("p")), asyncio.get_running_loop()
    await releasing(scene, asyncio.Event())
    began = loop.time()
    assert await scene.service.finish(10.0) == {**NOTHING, "unfinished_tasks": 1}
    assert loop.time() - began == pytest.approx(10.0)
    assert await scene.mark() == f"{NAME} 2 releasing"
    await scene.tick(by=scene.replica())
    assert await scene.mark() == f"{NAME} 2 released"
    assert scene.licenses.held == {}


@in_virtual_time
async def test_stop_waits_for_an_immediate_claim() -> None:
    wanted = claim("c", LICENSE)
    wanted["metadata"]["annotations"] = {"dra-extender.dev/allocation-mode": "Immediate"}
    scene, answers = Scene(wanted), asyncio.Event()
    scene.licenses.faults[ALLOCATE] = [Fault(until=answers)]
    for _ in range(3):
        await scene.tick()
    assert scene.licenses.asked(ALLOCATE)
    stop = asyncio.create_task(scene.service.finish(10.0))
    answers.set()
    assert await stop == NOTHING
    assert await scene.allocation("c") is not None


@in_virtual_time
async def test_no_turn_begins_after_a_stop() -> None:
    scene = Scene(*pods("p"))
    turns = asyncio.create_task(scene.service.background.run())
    await scene.bind()
    assert await scene.service.finish(10.0) == NOTHING
    assert turns.done()
    await scene.end()
    await virtualtime.elapse(60)
    assert scene.licenses.asked(DEALLOCATE) == []
