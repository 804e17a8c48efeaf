"""The budget of memory for what comes from outside: its limit, what a text weighs, and who gets room."""

import asyncio
import tracemalloc
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from extender.answers.metrics import IntakeMetrics
from extender.faces.serving.memory import MemoryLimit, memory_limit
from extender.tools.intake import Budget, Source, json_weight
from tests.kit import virtualtime
from tests.kit.objects import synthetic
from tests.kit.virtualtime import in_virtual_time

GIB = 1024**3
UNLIMITED = "9223372036854771712"
"""What version 1 tells if there is no limit."""

MACHINE = {"proc/meminfo": "MemTotal:       16777216 kB\nMemFree:        1 kB\n"}
FILES: dict[str, tuple[dict[str, str], int, str]] = {
    "version 2, in a container": (
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{GIB}\n"},
        GIB,
        "sys/fs/cgroup/memory.max",
    ),
    "version 2, on a host: the least of all around it": (
        {
            "proc/self/cgroup": "0::/pods/pod-1/main\n",
            "sys/fs/cgroup/pods/pod-1/main/memory.max": "max\n",
            "sys/fs/cgroup/pods/pod-1/memory.max": f"{GIB}\n",
            "sys/fs/cgroup/pods/memory.max": f"{2 * GIB}\n",
        },
        GIB,
        "sys/fs/cgroup/pods/pod-1/memory.max",
    ),
    "version 1, in a container that sees the path of the host": (
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/kubepods/x\n4:memory:/kubepods/x\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
        },
        GIB,
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
    ),
    "version 1, on a host": (
        {
            "proc/self/cgroup": "4:memory:/a/b\n0::/\n",
            "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{UNLIMITED}\n",
        },
        GIB,
        "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
    ),
    "version 1, without a limit": (
        {"proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": UNLIMITED},
        4 * GIB,
        "a quarter of the machine's memory",
    ),
    "no cgroups": ({}, 4 * GIB, "a quarter of the machine's memory"),
    "odd files": (
        {"proc/self/cgroup": "x\n0::/../../etc\n", "sys/fs/cgroup/memory.max": "many"},
        4 * GIB,
        "a quarter of the machine's memory",
    ),
}


@pytest.mark.parametrize(("files", "size", "source"), FILES.values(), ids=FILES)
def test_the_limit_of_memory_is_that_of_the_cgroup(
    files: dict[str, str], size: int, source: str, tmp_path: Path
) -> None:
    for name, text in {**MACHINE, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = memory_limit(tmp_path)
    assert found == MemoryLimit(size, str(tmp_path / source) if source.startswith("sys") else source)


# --- weights -------------------------------------------------------------------------------------------------

TEXTS = {
    "nodes": orjson.dumps([synthetic.node(number, number) for number in range(100)]),
    "pods": orjson.dumps([synthetic.pod(number, number, claims=True) for number in range(100)]),
    "slices": orjson.dumps([synthetic.resource_slice(number, number) for number in range(50)]),
    "names": orjson.dumps([f"ip-10-0-{number}.example.com" for number in range(20_000)]),
    "empty lists": b"[" + b"[]," * 100_000 + b"1]",
    "empty objects": b"[" + b"{}," * 100_000 + b"1]",
    "small objects": b"[" + b'{"a":1},' * 100_000 + b"1]",
    "nested": b"[" + b'[{"a":[1]}],' * 50_000 + b"1]",
    "fractions": b"[" + b"1.5," * 100_000 + b"1]",
    "short texts": b"[" + b'"ab",' * 100_000 + b"1]",
    "many fields": b"{" + b",".join(b'"field-%06d":1' % number for number in range(100_000)) + b"}",
    "wide text": '["😀'.encode() + b"a" * 500_000 + b'"]',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_weighs_about_what_it_takes_when_it_is_decoded(text: bytes) -> None:
    tracemalloc.start()
    try:
        value = orjson.loads(text)
        taken = tracemalloc.get_traced_memory()[0] + len(text)
    finally:
        tracemalloc.stop()
    assert value
    assert 0.4 * taken < json_weight(text) < 6 * taken


# --- room ----------------------------------------------------------------------------------------------------

LIMIT = 800


def test_a_source_gets_its_share_and_leaves_the_rest_to_others() -> None:
    budget = Budget(LIMIT)
    with budget.room(Source.REQUESTS) as room:
        assert room.grow(500)
        assert not room.grow(1)
        assert budget.refused[Source.REQUESTS] == 1
        with budget.room(Source.GRPC) as other, budget.room(Source.SCHEDULERS) as scheduler:
            assert not other.grow(1), "what is left is for schedulers and for objects of the API server"
            assert scheduler.grow(100)
            assert not scheduler.grow(1)
            with budget.room(Source.API_SERVER) as objects:
                assert objects.grow(200)
                assert sum(budget.taken.values()) == LIMIT
    assert not any(budget.taken.values())


@given(steps=st.lists(st.tuples(st.sampled_from(Source), st.integers(-300, 300)), max_size=50))
def test_no_more_is_taken_than_there_is(steps: list[tuple[Source, int]]) -> None:
    budget, own = Budget(LIMIT), dict.fromkeys(Source, 0)
    for source, size in steps:
        if size > 0 and budget.take(source, size):
            own[source] += size
        elif size < 0:
            budget.give_back(source, min(-size, own[source]))
            own[source] -= min(-size, own[source])
        assert budget.taken == own
        assert all(own[each] <= budget.share(each) for each in Source)
        assert sum(own.values()) <= LIMIT


@in_virtual_time
async def test_objects_of_the_api_server_wait_for_room_in_their_order() -> None:
    budget, done = Budget(LIMIT), list[str]()

    async def read(name: str, size: int, seconds: float) -> None:
        async with budget.waiting(Source.API_SERVER, size):
            await virtualtime.elapse(seconds)
            done.append(name)

    async with asyncio.TaskGroup() as reading:
        for name, size, seconds in (("first", 150, 3), ("larger than all", 10_000, 1), ("small", 10, 0)):
            reading.create_task(read(name, size, seconds))
    assert not any(budget.taken.values())
    assert done == ["first", "larger than all", "small"]


@in_virtual_time
async def test_who_is_cancelled_while_it_waits_takes_no_room() -> None:
    budget = Budget(LIMIT)

    async def read() -> None:
        async with budget.waiting(Source.API_SERVER, 200):
            await asyncio.sleep(0)

    async with budget.waiting(Source.API_SERVER, 200):
        waiting = [asyncio.create_task(read()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
    waiting[1].cancel()  # in the moment in which it gets its turn
    await asyncio.wait(waiting)
    assert [each.cancelled() for each in waiting] == [True, True, False]
    assert not any(budget.taken.values())


@in_virtual_time
async def test_requests_take_no_room_from_the_api_server() -> None:
    budget = Budget(LIMIT)
    for source in Source:
        while source is not Source.API_SERVER and budget.take(source, 10):
            pass
    async with asyncio.timeout(1), budget.waiting(Source.API_SERVER, 200):
        assert budget.taken[Source.API_SERVER] == 200


def test_metrics_tell_what_is_taken_and_what_was_refused() -> None:
    registry, budget = CollectorRegistry(), Budget(LIMIT)
    registry.register(IntakeMetrics(budget))
    assert budget.take(Source.GRPC, 100)
    assert not budget.take(Source.GRPC, 1000)
    lines = generate_latest(registry).decode().splitlines()
    assert "dra_extender_intake_limit_bytes 800.0" in lines
    assert 'dra_extender_intake_bytes{source="grpc"} 100.0' in lines
    assert 'dra_extender_intake_refused_total{source="grpc"} 1.0' in lines
