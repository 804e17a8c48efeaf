"""Turns of decoding: one long input of all sources at a time, and then none for as long as it took."""

import asyncio
from itertools import pairwise

import pytest

from extender.tools.intake import SLICE_SECONDS, DecodingTurns, Steps
from extender.tools.offload import at_once
from tests.kit import virtualtime
from tests.kit.virtualtime import in_virtual_time


class Decoding:
    """Sources with long inputs. The clock is that of the loop.

    Attributes:
        worked: each piece: its source, its begin and its end.
    """

    def __init__(self) -> None:
        self.turns = DecodingTurns(lambda: asyncio.get_running_loop().time())
        self.worked: list[tuple[str, float, float]] = []

    async def decode(self, source: str, seconds: float, pieces: int = 1) -> None:
        now = asyncio.get_running_loop().time
        for _ in range(pieces):
            async with self.turns.turn(source):
                began = now()
                await virtualtime.elapse(seconds)
                self.worked.append((source, began, now()))


@in_virtual_time
async def test_all_sources_together_decode_one_input_at_a_time_for_half_of_any_tenth_of_a_second() -> None:
    scene = Decoding()
    sources = ("schedulers", "requests", "grpc", "controllers", "api_server")
    await asyncio.gather(*[scene.decode(each, 0.002 * number, 60) for number, each in enumerate(sources, 1)])
    spans = sorted((began, ended) for _, began, ended in scene.worked)
    assert all(ended <= began for (_, ended), (began, _) in pairwise(spans))
    last = spans[-1][1]
    for at in range(0, int(last * 1000) - 100, 7):
        since, until = at / 1000, at / 1000 + 0.1
        busy = sum(max(0.0, min(ended, until) - max(began, since)) for began, ended in spans)
        assert busy <= 0.05 + 0.010 + 1e-9, "at most one piece more than half of the time"


@in_virtual_time
async def test_a_source_with_hundreds_of_inputs_delays_another_one_by_one_of_them() -> None:
    scene = Decoding()
    many = [asyncio.create_task(scene.decode("requests", 0.02)) for _ in range(300)]
    await virtualtime.elapse(3)
    began = asyncio.get_running_loop().time()
    await scene.decode("api_server", 0.001)
    assert asyncio.get_running_loop().time() - began < 0.045
    for each in many:
        each.cancel()
    await asyncio.gather(*many, return_exceptions=True)
    assert not len(scene.turns)


@in_virtual_time
async def test_who_leaves_while_it_waits_for_its_turn_keeps_nobody_waiting() -> None:
    scene = Decoding()
    first, left, last = (asyncio.create_task(scene.decode(each, 0.01)) for each in "abc")
    await virtualtime.elapse(0.005)
    left.cancel()
    await asyncio.gather(first, left, last, return_exceptions=True)
    assert [source for source, _, _ in scene.worked] == ["a", "c"]
    await scene.decode("d", 0.01)


@in_virtual_time
async def test_a_turn_that_comes_to_somebody_who_has_just_left_goes_to_the_next() -> None:
    turns = DecodingTurns()
    order = list[str]()

    async def wait(name: str) -> None:
        async with turns.turn(name, lambda _: 0.0):
            order.append(name)

    async with turns.turn("first", lambda _: 0.0):
        leaving, waiting = asyncio.create_task(wait("leaving")), asyncio.create_task(wait("waiting"))
        await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, waiting, return_exceptions=True)
    assert order == ["waiting"]


@in_virtual_time
async def test_work_in_steps_has_its_turn_again_and_again_with_others_between() -> None:
    passed = 0.0
    turns, order = DecodingTurns(worked=lambda: passed), list[str]()

    def steps() -> Steps[str]:
        nonlocal passed
        for _ in range(10):
            order.append("step")
            passed += SLICE_SECONDS / 2
            yield
        return "made"

    async def other() -> None:
        async with turns.turn("other"):
            order.append("other")

    made, _ = await asyncio.gather(turns.in_slices("steps", steps(), at_once), other())
    assert made == "made"
    assert order.index("other") <= 4, "two slices"
    assert order.count("step") == 10


@in_virtual_time
async def test_an_error_in_a_step_gives_the_turn_to_the_next() -> None:
    turns = DecodingTurns()

    def broken() -> Steps[None]:
        yield
        raise ValueError("no message")

    with pytest.raises(ValueError, match="no message"):
        await turns.in_slices("steps", broken(), at_once)
    async with turns.turn("next"):
        pass
