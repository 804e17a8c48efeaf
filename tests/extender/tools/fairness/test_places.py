"""Places for works: few at a time, with shares by caller and a bound on waiting; tables and explanations on HTTP."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from extender.assembly import make_extender
from extender.config.settings import Settings
from extender.framework.metrics import Metrics
from extender.tools.fairness.places import MOST_WAITING, WAITING_SECONDS, CrowdedError, Places
from extender.tools.fairness.verb_priority import VerbPriority
from tests.kit import virtualtime
from tests.kit.clusters import GPU, Cluster, HeldClock, app_over, claim, device_class, local_slice, node, solver

ENOUGH = 10.0
"""Real seconds after which a test that waits for a thread has failed."""


class Scene:
    """Works of virtual seconds, two at a time and of one caller one.

    Attributes:
        ended: when each work had ended, by its name; or why it was refused.
    """

    def __init__(self, most: int = 2, of_caller: int = 1) -> None:
        self._clock = asyncio.get_running_loop().time
        self._places = Places(most, of_caller, self._clock)
        self._works: list[asyncio.Task[None]] = []
        self.ended: dict[str, float | str] = {}

    def work(self, name: str, seconds: float) -> asyncio.Task[None]:
        """A work that takes some seconds. The caller is the name's first letter."""
        self._works.append(asyncio.create_task(self._work(name, seconds)))
        return self._works[-1]

    async def _work(self, name: str, seconds: float) -> None:
        async def slowly(work: Callable[[], None]) -> None:
            await virtualtime.elapse(seconds)
            work()

        try:
            await self._places.offload(slowly, name[0])(lambda: None)  # type: ignore[arg-type]  # works without a result
            self.ended[name] = self._clock()
        except CrowdedError as error:
            self.ended[name] = str(error)

    async def all(self) -> Mapping[str, float | str]:
        await asyncio.gather(*self._works, return_exceptions=True)
        return self.ended


def played(story: Callable[[], Coroutine[Any, Any, Mapping[str, float | str]]]) -> Mapping[str, float | str]:
    return virtualtime.run(story())


def test_two_slow_works_of_one_caller_keep_nobody_else_waiting() -> None:
    async def story() -> Mapping[str, float | str]:
        scene = Scene()
        for name, seconds in (("a1", 5.0), ("a2", 5.0), ("b1", 1.0)):
            scene.work(name, seconds)
        return await scene.all()

    assert played(story) == {"b1": 1.0, "a1": 5.0, "a2": 10.0}


def test_who_has_used_little_comes_next_whoever_has_come_first() -> None:
    async def story() -> Mapping[str, float | str]:
        scene = Scene()
        for name in ("a1", "b1", "a2", "b2", "a3", "b3"):
            scene.work(name, 2.0)
        await virtualtime.elapse(1.0)
        scene.work("c1", 0.05)
        return await scene.all()

    found = played(story)
    assert found["c1"] == 2.05
    assert found["a3"] == found["b3"] or {found["a3"], found["b3"]} == {6.0, 6.05}


def test_nobody_waits_for_longer_than_a_bound() -> None:
    async def story() -> Mapping[str, float | str]:
        scene = Scene(1)
        scene.work("a1", 100.0)
        scene.work("b1", 1.0)
        began = asyncio.get_running_loop().time()
        await virtualtime.elapse(WAITING_SECONDS + 1.0)
        assert scene.ended == {"b1": "the requests of others take long; try again"}
        assert began == 0.0
        return await scene.all()

    assert played(story)["a1"] == 100.0


def test_a_caller_that_waits_with_many_works_is_refused_alone() -> None:
    async def story() -> Mapping[str, float | str]:
        scene = Scene()
        for number in range(MOST_WAITING + 3):
            scene.work(f"a{number}", 0.5)
        scene.work("b1", 0.5)
        return await scene.all()

    found = played(story)
    refused = [name for name, ended in found.items() if isinstance(ended, str)]
    assert refused == [f"a{MOST_WAITING + 1}", f"a{MOST_WAITING + 2}"]
    assert found["b1"] == 0.5


@pytest.mark.parametrize("until", [0.0, 1.0])
def test_a_caller_that_leaves_keeps_its_place_until_the_work_ends_and_waits_no_more(until: float) -> None:
    async def story() -> Mapping[str, float | str]:
        scene = Scene(1)
        leaving = [scene.work("a1", 3.0), scene.work("b1", 3.0)]
        scene.work("c1", 1.0)
        await virtualtime.elapse(until)
        for each in leaving:
            each.cancel()
        return await scene.all()

    assert played(story) == {"c1": 4.0}


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0.01, 5.0), st.floats(0.0, 3.0)), max_size=30))
def test_in_any_case_places_are_given_back_and_no_wait_exceeds_its_bound(works: list[tuple[str, float, float]]) -> None:
    async def story() -> Mapping[str, float | str]:
        scene, clock = Scene(), asyncio.get_running_loop().time
        for number, (caller, seconds, pause) in enumerate(works):
            scene.work(f"{caller}{number}", seconds)
            await virtualtime.elapse(pause)
        began = clock()
        await scene.all()
        assert clock() <= began + WAITING_SECONDS + 5.0
        scene.work("z1", 1.0)
        scene.work("y1", 1.0)
        now = clock()
        await scene.all()
        assert clock() == now + 1.0
        return scene.ended

    assert len(played(story)) == len(works) + 2


# --- on HTTP -------------------------------------------------------------------------------------------------


def client_at(app: FastAPI, address: str) -> AsyncClient:
    """A caller at an address of its own."""
    return AsyncClient(transport=ASGITransport(app, client=(address, 1)), base_url="http://localhost")


def slow_app(clock: Callable[[], float]) -> FastAPI:
    """Selectors take as long as a clock says."""
    chosen = device_class("slow", selectors=("device.driver != ''",))
    cluster = Cluster.of(GPU, chosen, node("a"), local_slice("a"), claim("c"))
    slow = replace(solver(), clock=clock)
    return app_over(make_extender(cluster.api, cluster.state, slow, Settings(), Metrics(CollectorRegistry())))


async def test_two_tables_with_slow_selectors_keep_no_other_reader_waiting() -> None:
    clock = HeldClock()
    app = slow_app(clock)
    async with client_at(app, "10.0.0.1") as greedy, client_at(app, "10.0.0.2") as other:
        slow = [asyncio.create_task(greedy.get("/devices?class=slow")) for _ in range(2)]
        assert await asyncio.to_thread(clock.reached.wait, ENOUGH)
        for reader in (greedy, other):
            async with asyncio.timeout(ENOUGH):
                assert (await reader.get("/claims")).status_code == 200
                assert (await reader.get("/devices")).status_code == 200
        clock.go.set()
        assert [each.status_code for each in await asyncio.gather(*slow)] == [200, 200]


async def test_whoever_waits_with_too_many_tables_is_told_to_come_later() -> None:
    clock = HeldClock()
    app = slow_app(clock)
    async with client_at(app, "10.0.0.1") as greedy, client_at(app, "10.0.0.2") as other:
        first = asyncio.create_task(greedy.get("/devices?class=slow"))
        assert await asyncio.to_thread(clock.reached.wait, ENOUGH)
        slow = [asyncio.create_task(greedy.get("/devices?class=slow")) for _ in range(MOST_WAITING + 1)]
        found, _ = await asyncio.wait(slow, return_when=asyncio.FIRST_COMPLETED, timeout=ENOUGH)
        (refused,) = found
        assert refused.result().status_code == 429
        assert refused.result().headers["retry-after"]
        assert refused.result().json() == {
            "error": f"{MOST_WAITING} other requests of yours wait for their turn; try again"
        }
        clock.go.set()
        assert (await other.get("/devices?class=slow")).status_code == 200
        replies = await asyncio.gather(first, *slow)
    assert sorted(each.status_code for each in replies) == [200] * (MOST_WAITING + 1) + [429]


async def test_a_table_and_the_fleet_pause_while_a_verb_runs() -> None:
    paused: list[float] = []
    extender = Cluster.of(node("a"), local_slice("a")).extender()
    priority = VerbPriority(lambda: 0.0, paused.append)
    app = app_over(replace(extender, overview=replace(extender.overview, verb_priority=priority)))
    async with client_at(app, "10.0.0.1") as reader:
        for path in ("/devices", "/pools", "/console/fleet"):
            with priority.verb():
                assert (await reader.get(path)).status_code == 200
            assert paused, path
            paused.clear()
            assert (await reader.get(path)).status_code == 200
            assert not paused, path


async def test_selectors_of_a_table_pause_while_a_verb_runs() -> None:
    paused: list[float] = []
    cluster = Cluster.of(device_class("gpu", selectors=("device.driver != ''",)), node("a"), local_slice("a"))
    overview = replace(cluster.extender().overview, verb_priority=VerbPriority(lambda: 0.0, paused.append))
    with overview.verb_priority.verb():
        overview.selecting_clock()()
    assert paused
    paused.clear()
    overview.selecting_clock()()
    assert not paused
