"""The garbage collector is spared what has survived it, but not for ever."""

import asyncio
import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from extender.faces.serving.memory import (
    SECONDS_BETWEEN_ALL,
    collect_all_now_and_then,
    sparing_survivors,
    undisturbed,
    undisturbed_start,
)
from tests.kit.virtualtime import elapse, in_virtual_time


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _collected_before_and_after() -> Iterator[None]:
    gc.collect()
    yield
    gc.collect()


def test_what_has_survived_is_not_looked_at_again() -> None:
    kept = Cycle()
    alive = ref(kept)
    with sparing_survivors():
        gc.collect()
        del kept
        gc.collect()
        assert alive() is not None
    gc.collect()
    assert alive() is None


def test_garbage_that_is_new_is_collected() -> None:
    with sparing_survivors():
        gc.collect()
        alive = ref(Cycle())
        gc.collect()
    assert alive() is None


@in_virtual_time
async def test_after_an_hour_everything_is_looked_at() -> None:
    kept = Cycle()
    alive = ref(kept)
    with sparing_survivors():
        looking = asyncio.create_task(collect_all_now_and_then())
        gc.collect()
        del kept
        await elapse(SECONDS_BETWEEN_ALL - 1)
        gc.collect()
        assert alive() is not None
        await elapse(2)
        assert alive() is None
        looking.cancel()


@in_virtual_time
async def test_a_full_collection_examines_few_objects_however_many_are_made() -> None:
    """It stops every thread. So it is, too, after all objects were looked at."""
    examined: list[int] = []

    def called(phase: str, info: dict[str, int]) -> None:
        if (phase, info["generation"]) == ("start", 2):
            examined.append(sum(len(gc.get_objects(each)) for each in range(3)))

    with sparing_survivors():
        looking = asyncio.create_task(collect_all_now_and_then())
        await elapse(SECONDS_BETWEEN_ALL + 1)
        looking.cancel()
        gc.callbacks.append(called)
        kept = [Cycle() for _ in range(50_000)]
        gc.callbacks.remove(called)
    assert len(kept) == 50_000
    assert len(examined) > 1
    assert max(examined) < 25_000


def test_afterwards_the_collector_is_as_it_was() -> None:
    before = [*gc.callbacks, gc.get_threshold()]
    with sparing_survivors():
        gc.collect()
        assert gc.get_freeze_count() > 0
    assert [*gc.callbacks, gc.get_threshold()] == before
    assert gc.get_freeze_count() == 0


def test_what_is_made_undisturbed_is_neither_collected_nor_looked_at_later() -> None:
    with undisturbed():
        kept = Cycle()
        alive = ref(kept)
        del kept
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.collect()
    assert alive() is not None
    gc.unfreeze()
    gc.collect()
    assert alive() is None


@in_virtual_time
async def test_the_first_lists_are_read_undisturbed() -> None:
    ready: list[bool] = []
    reading = asyncio.create_task(undisturbed_start(lambda: bool(ready)))
    await elapse(20)
    assert not gc.isenabled()
    ready.append(True)
    await elapse(1)
    assert gc.isenabled()
    await reading
    gc.unfreeze()


@in_virtual_time
async def test_a_start_that_takes_longer_than_a_minute_collects_its_garbage() -> None:
    await undisturbed_start(lambda: False)
    assert asyncio.get_running_loop().time() == pytest.approx(60.0)
    assert gc.isenabled()
    gc.unfreeze()
