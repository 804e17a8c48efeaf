"""Bodies of requests: how long, how dense, how many at a time; and what else of a request is kept or has to be read."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import structlog
from httpx import AsyncClient
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from extender.config.sources import load
from extender.faces.http.bodies import (
    BYTES_A_VALUE,
    FREE_BYTES,
    HEAD_BYTES,
    SMALL_BYTES,
    TEXT_BYTES,
    UNCOUNTED_BYTES,
    Bodies,
    Body,
    BusyError,
    TooLargeError,
)
from extender.faces.http.endpoints.operations import in_pieces
from extender.faces.http.endpoints.scheduler_verbs import VERBS
from extender.faces.http.replies import Shared
from extender.framework.wire import WireError, decode_filter
from extender.tools.intake import Budget, Source
from tests.kit import virtualtime
from tests.kit.clusters import Cluster, Object, claim, client_of, device_class, local_slice, node, pod
from tests.kit.cycles import errors_in_cycles
from tests.kit.virtualtime import in_virtual_time

MIB = 1024 * 1024
TEXT = b'"' + b" " * (MIB - 1)


def receiving(*chunks: bytes, leaves: bool = False) -> tuple[Receive, Iterator[Message]]:
    """A client that sends these chunks, and perhaps leaves then."""
    messages: list[Message] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": "http.disconnect"} if leaves else {"type": "http.request", "body": b""})
    left = iter(messages)

    async def receive() -> Message:
        return next(left)

    return receive, left


# --- all bodies together -------------------------------------------------------------------------------------


async def test_what_a_body_takes_is_counted_while_it_is_worked_on_but_for_what_is_free() -> None:
    bodies = Bodies(4 * MIB, Budget())
    with Body(bodies) as body:
        assert len(await body.read(receiving(b" " * MIB, b" " * MIB)[0])) == 2 * MIB
        assert bodies.taken == 2 * MIB - UNCOUNTED_BYTES
        with Body(bodies) as small:
            await small.read(receiving(b" " * UNCOUNTED_BYTES)[0])
            assert bodies.taken == 2 * MIB - UNCOUNTED_BYTES
    assert bodies.taken == 0


async def test_a_body_for_which_there_is_no_room_is_refused_and_read_to_its_end() -> None:
    bodies = Bodies(4 * MIB, Budget())
    with Body(bodies) as body:
        await body.read(receiving(*[TEXT] * 3)[0])
        receive, left = receiving(*[TEXT] * 3)
        with (
            Body(bodies) as other,
            pytest.raises(BusyError, match="the bodies of other requests take 3096576 of 4194304 bytes"),
        ):
            await other.read(receive)
        assert list(left) == []
        assert bodies.taken == 3 * MIB - UNCOUNTED_BYTES
    with Body(bodies) as again:
        assert len(await again.read(receiving(*[TEXT] * 3)[0])) == 3 * MIB


@pytest.mark.parametrize(
    ("chunks", "leaves", "error"),
    [
        ([TEXT] * 5, False, TooLargeError),
        ([b" " * MIB] * 2, True, ClientDisconnect),
        ([b"[" * MIB], False, WireError),
    ],
    ids=["too large", "client leaves", "too dense"],
)
async def test_what_a_body_took_is_given_back_whatever_happens(
    chunks: list[bytes], leaves: bool, error: type[Exception]
) -> None:
    bodies = Bodies(4 * MIB, Budget())
    with pytest.raises(error), Body(bodies) as body:
        await body.read(receiving(*chunks, leaves=leaves)[0])
    assert bodies.taken == 0


# --- memory --------------------------------------------------------------------------------------------------

SMALL_OBJECTS = b"[" + b'{"abcdefghijk":1},' * 200_000 + b"1]"
"""3 MB that take 60 MB when they are decoded, although there are 8 bytes for each value."""


async def test_a_body_that_takes_more_memory_than_there_is_for_requests_is_too_large() -> None:
    bodies = Bodies(64 * MIB, Budget(64 * MIB))
    receive, left = receiving(*[SMALL_OBJECTS[at : at + MIB] for at in range(0, len(SMALL_OBJECTS), MIB)])
    with Body(bodies) as body, pytest.raises(TooLargeError, match=r"more than 33554432 bytes of memory"):
        await body.read(receive)
    assert list(left) == []
    assert not any(bodies.budget.taken.values())


async def test_a_body_for_which_others_leave_no_memory_may_come_again() -> None:
    bodies = Bodies(64 * MIB, Budget(120 * MIB))
    with Body(bodies) as body:
        await body.read(receiving(SMALL_OBJECTS)[0])
        with Body(bodies) as other, pytest.raises(BusyError, match="leave no memory for the body; try again"):
            await other.read(receiving(SMALL_OBJECTS)[0])
    with Body(bodies) as again:
        assert len(await again.read(receiving(SMALL_OBJECTS)[0])) == len(SMALL_OBJECTS)


@pytest.mark.parametrize(("free", "counted"), [(0, True), (FREE_BYTES, False)])
async def test_short_bodies_that_are_decoded_at_the_same_time_count_too(free: int, counted: bool) -> None:
    bodies = Bodies(64 * MIB, Budget())
    with Body(bodies, free=free) as body:
        await body.read(receiving(b'{"a":1},' * 30_000)[0])
        assert (bodies.budget.taken[Source.REQUESTS] > 5 * MIB) is counted


async def test_bodies_of_one_caller_leave_memory_to_another() -> None:
    bodies = Bodies(64 * MIB, Budget(100 * MIB))
    small = SMALL_OBJECTS[: len(SMALL_OBJECTS) // 10]
    with contextlib.ExitStack() as stack:
        taken = 0
        for _ in range(100):
            body = stack.enter_context(Body(bodies, caller="greedy"))
            with contextlib.suppress(BusyError):
                await body.read(receiving(small)[0])
                taken += 1
        assert 5 < taken < 100
        with Body(bodies, caller="other") as other:
            assert await other.read(receiving(small)[0]) == small
    assert not any(bodies.budget.taken.values())


async def test_bodies_of_people_leave_memory_to_schedulers() -> None:
    budget = Budget(100 * MIB)
    people, schedulers = Bodies(64 * MIB, budget), Bodies(64 * MIB, budget, Source.SCHEDULERS)
    small = SMALL_OBJECTS[: len(SMALL_OBJECTS) // 10]
    with contextlib.ExitStack() as stack:
        for number in range(100):
            body = stack.enter_context(Body(people, caller=f"caller {number}"))
            with contextlib.suppress(BusyError):
                await body.read(receiving(small)[0])
        assert budget.refused[Source.REQUESTS]
        with Body(schedulers) as body:
            assert await body.read(receiving(small * 2)[0]) == small * 2


# --- texts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"", '😀"'.encode()], ids=["no end", "the end of the text"])
async def test_a_text_that_no_object_has_is_refused_and_the_body_read_to_its_end(end: bytes) -> None:
    bodies = Bodies(64 * MIB, Budget())
    receive, left = receiving(b'{"a":"', *[b"a" * (TEXT_BYTES // 8)] * 9, end)
    with Body(bodies) as body, pytest.raises(WireError, match="a text of more than 2097152 bytes"):
        await body.read(receive)
    assert list(left) == []
    assert not any(bodies.budget.taken.values())


# --- density -------------------------------------------------------------------------------------------------

SENSELESS = {
    "empty lists": b"[" + b"[]," * 100_000 + b"[]]",
    "empty objects": b"[" + b"{}," * 100_000 + b"{}]",
    "numbers": b"[" + b"1," * 200_000 + b"1]",
    "short names": b"[" + b'"a",' * 100_000 + b'"a"]',
    "nested lists": b"[" * 300_000,
}


@pytest.mark.parametrize("body", SENSELESS.values(), ids=SENSELESS)
async def test_what_would_take_much_more_when_decoded_is_refused_before(body: bytes) -> None:
    with Body(Bodies(64 * MIB, Budget())) as reading, pytest.raises(WireError, match=r"about \d+ values in \d+ bytes"):
        await reading.read(receiving(body)[0])


async def test_values_are_counted_over_all_chunks() -> None:
    chunks = [b"[" + b"1," * 200_000, *[b"1," * 30_000] * 3, b"1]"]
    with (
        Body(Bodies(64 * MIB, Budget())) as reading,
        pytest.raises(WireError, match="about 290001 values in 580003 bytes"),
    ):
        await reading.read(receiving(*chunks)[0])


MANAGED = {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:x": {"f:a": {}, "f:b": {}}}}}


@pytest.mark.parametrize(
    "asked",
    [
        {"NodeNames": [f"ip-10-0-{number}" for number in range(30_000)]},
        {"Nodes": {"items": [{**node(f"n{number}"), "managedFields": [MANAGED]} for number in range(5_000)]}},
    ],
    ids=["names", "nodes"],
)
async def test_what_a_scheduler_sends_is_not_dense(asked: Object) -> None:
    body = orjson.dumps({"Pod": pod("p"), **asked})
    assert len(body) > FREE_BYTES
    with Body(Bodies(64 * MIB, Budget())) as reading:
        assert await reading.read(receiving(body)[0]) == body
    values = body.count(b",") + body.count(b"[") + body.count(b"{")
    assert values * BYTES_A_VALUE < len(body)


# --- pieces --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "most"), [(UNCOUNTED_BYTES + 1, 1), (UNCOUNTED_BYTES, 50)], ids=["long", "short"])
@in_virtual_time
async def test_of_long_bodies_that_come_at_once_one_piece_is_looked_at_in_a_cycle_of_the_event_loop(
    size: int, most: int
) -> None:
    """To look at the pieces of 200 connections takes 0.1 s, and other calls would wait for it."""
    in_cycles = [0]

    async def others() -> None:
        while True:
            in_cycles.append(0)
            await asyncio.sleep(0)

    async def read(bodies: Bodies) -> None:
        with Body(bodies) as body:
            await body.read(receiving(b" " * size)[0])
        in_cycles[-1] += 1

    bodies, working = Bodies(64 * MIB, Budget()), asyncio.create_task(others())
    await asyncio.gather(*[read(bodies) for _ in range(50)])
    working.cancel()
    assert (sum(in_cycles), max(in_cycles)) == (50, most)


def long_call(namespace: str) -> bytes:
    """The body of a call about a long pod, as kube-scheduler writes it."""
    labels = {"text": "x" * (UNCOUNTED_BYTES + 1)}
    return orjson.dumps({"Pod": {"metadata": {"name": "p", "namespace": namespace, "labels": labels}}})


@pytest.mark.parametrize(
    ("source", "before"),
    [(Source.SCHEDULERS, 1), (Source.REQUESTS, 20)],
    ids=["of a scheduler, by namespace", "of one other caller, in the order of arrival"],
)
@in_virtual_time
async def test_long_pods_of_one_namespace_delay_one_of_another_by_one_piece(source: Source, before: int) -> None:
    """A scheduler asks for all tenants. Another caller could name any namespaces."""
    done: list[str] = []

    async def read(bodies: Bodies, namespace: str) -> None:
        with Body(bodies) as body:
            await body.read(receiving(long_call(namespace))[0])
        done.append(namespace)

    bodies = Bodies(64 * MIB, Budget(), source)
    await asyncio.gather(*[read(bodies, each) for each in (*["many"] * 20, "one")])
    assert done.index("one") == before


def test_the_namespace_of_a_pod_counts_only_at_the_beginning_of_a_call() -> None:
    bodies = Bodies(64 * MIB, Budget(), Source.SCHEDULERS)
    assert bodies.whose_turn("", long_call("ns")) == " ns"
    assert bodies.whose_turn("", b'{"NodeNames":[' + b" " * HEAD_BYTES + b'"namespace":"ns"') == ""
    assert bodies.whose_turn("", b"[]") == ""


# --- on HTTP -------------------------------------------------------------------------------------------------


OBJECTS = (device_class(), node("a"), local_slice("a"), claim("c"), pod("p", "c"))


async def post(client: AsyncClient, path: str, body: object) -> Any:
    return (await client.post(path, content=body if isinstance(body, bytes) else orjson.dumps(body))).json()


@pytest.mark.parametrize("path", ["/bind", "/autoscaler/start", "/autoscaler/NodeReady"])
async def test_a_verb_that_is_sent_a_few_names_takes_short_bodies_only(client: AsyncClient, path: str) -> None:
    message = f"the body is longer than the limit of {SMALL_BYTES} bytes"
    assert await post(client, path, b" " * (SMALL_BYTES + 1)) == {"Error": message}


async def test_explain_says_what_is_wrong_with_a_body(cluster: Cluster) -> None:
    async with client_of(cluster.app(load("server: {bodyLimitBytes: 1048576}"))) as client:
        for body, status, message in (
            (b" " * (MIB + 1), 413, "longer than the limit"),
            (b"[" * MIB, 400, "values"),
            (b"", 400, "the body is empty"),
        ):
            response = await client.post("/explain", content=body)
            assert response.status_code == status
            assert message in response.json()["error"]


@pytest.mark.parametrize("path", ["/explain", "/filter", "/autoscaler/filter", "/bind"])
async def test_of_a_body_that_is_refused_nothing_stays_until_garbage_is_collected(cluster: Cluster, path: str) -> None:
    """What lives for long is examined once an hour only, and the frames of an error hold the body."""
    bodies = (b" " * (MIB + 1), b"[" * MIB, b"", b"{", b"[" * 100_000 + b"]" * 100_000, b'{"Pod": 1}')
    async with client_of(cluster.app(load("server: {bodyLimitBytes: 1048576}"))) as client:
        await client.post(path, content=b"")  # the first request makes what stays
        with errors_in_cycles() as found:
            for body in bodies:
                await client.post(path, content=body)
        assert found == []


async def test_who_leaves_before_the_end_of_the_body_is_no_error(cluster: Cluster) -> None:
    app, sent = cluster.app(), []
    scope = {"type": "http", "method": "POST", "path": "/explain", "query_string": b"", "headers": []}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receiving(b"{", leaves=True)[0], send)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


def named(**metadata: str) -> Object:
    return {"metadata": {"name": "p", "namespace": "ns", "uid": "u", **metadata}, "spec": {"containers": []}}


LONG = "n" * 254
WITH_LONG_NAMES: dict[str, tuple[str, Object, str]] = {
    "bind pod": ("/bind", {"PodName": LONG, "PodNamespace": "ns", "PodUID": "u", "Node": "a"}, "PodName"),
    "bind namespace": ("/bind", {"PodName": "p", "PodNamespace": "n" * 64, "PodUID": "u", "Node": "a"}, "PodNamespace"),
    "bind uid": ("/bind", {"PodName": "p", "PodNamespace": "ns", "PodUID": LONG, "Node": "a"}, "PodUID"),
    "bind node": ("/bind", {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": LONG}, "Node"),
    "filter pod": ("/filter", {"Pod": named(name=LONG), "NodeNames": ["a"]}, "Pod.metadata.name"),
    "filter namespace": ("/filter", {"Pod": named(namespace=LONG), "NodeNames": ["a"]}, "Pod.metadata.namespace"),
    "filter uid": ("/filter", {"Pod": named(uid=LONG), "NodeNames": ["a"]}, "Pod.metadata.uid"),
    "filter node": (
        "/filter",
        {"Pod": named(), "Nodes": {"items": [{"metadata": {"name": LONG}}]}},
        "Nodes.items[0].metadata.name",
    ),
    "preempt pod": ("/preempt", {"Pod": named(name=LONG), "NodeNameToMetaVictims": {}}, "Pod.metadata.name"),
    "explain": ("/explain", named(name=LONG), "metadata.name"),
    "booked pod": ("/autoscaler/NodeSelected", {"Pod": named(name=LONG), "Node": node("a")}, "Pod.metadata.name"),
}


@pytest.mark.parametrize(("path", "body", "field"), WITH_LONG_NAMES.values(), ids=WITH_LONG_NAMES)
async def test_a_name_that_is_longer_than_any_is_refused_by_its_field(
    client: AsyncClient, path: str, body: Object, field: str
) -> None:
    reply = await post(client, path, body)
    (message,) = reply.values()
    assert message.startswith(f"{field}: must be no more than ")
    assert len(message) < 200


@pytest.mark.parametrize("verb", [each.name for each in VERBS])
async def test_the_decisions_that_are_kept_are_short_whatever_was_sent(client: AsyncClient, verb: str) -> None:
    asked = pod("q", "c" * MIB)
    await post(client, f"/{verb}", {"Pod": asked, "NodeNames": ["a"], "NodeNameToMetaVictims": {}})
    assert len((await client.get("/decisions")).content) < 4096


def deep(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize("depth", [250, 300, 1000, 5000])
@pytest.mark.parametrize("path", ["/filter", "/prioritize", "/preempt", "/autoscaler/filter", "/explain"])
async def test_what_is_nested_deeply_is_answered_or_a_clear_error(client: AsyncClient, path: str, depth: int) -> None:
    whole = b'{"metadata":{"name":"a"},"spec":%b}' % deep(depth)
    asked = orjson.dumps(pod("plain"))
    body = b'{"Pod":%b,"Nodes":{"items":[%b]},"NodeNameToMetaVictims":{"a":{"Pods":%b}}}' % (asked, whole, deep(depth))
    with structlog.testing.capture_logs() as logs:
        response = await client.post(path, content=body)
    assert response.status_code in {200, 400}
    assert "internal error" not in response.text
    assert not [each for each in logs if each["log_level"] == "error"]


async def test_a_misspelt_parameter_is_told_however_many_there_are(client: AsyncClient) -> None:
    response = await client.get("/devices?" + "&".join(f"p{number}=1" for number in range(3000)))
    assert response.status_code == 400
    assert response.json()["error"].endswith("; and 2990 more")
    assert len(response.content) < 4096


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/filter", "/livez", "/explain"])
async def test_methods_that_are_not_there_say_so(client: AsyncClient, method: str, path: str) -> None:
    response = await client.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"]
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(("length", "is_same"), [(10, True), (FREE_BYTES, False)])
def test_long_pods_are_not_remembered(length: int, is_same: bool) -> None:
    asked = pod("p")
    asked["metadata"]["annotations"] = {"a": "x" * length}
    body = orjson.dumps({"Pod": asked, "NodeNames": ["a"], "Nodes": None})
    assert (decode_filter(body).pod is decode_filter(body).pod) == is_same


# --- metrics -------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_metrics_are_rendered_once_for_all_who_ask_and_not_all_the_time() -> None:
    loop, begun = asyncio.get_running_loop(), []

    async def render() -> bytes:
        begun.append(loop.time())
        await virtualtime.elapse(1)
        return b"%d" % len(begun)

    shared = Shared(render, loop.time, pause=9)
    found = [asyncio.create_task(shared.latest()) for _ in range(10)]
    await virtualtime.elapse(0.5)
    found += [asyncio.create_task(shared.latest()) for _ in range(10)]
    found[-1].cancel()
    assert (begun, await asyncio.gather(*found[:-1])) == ([0.0, 10.0], [b"1"] * 10 + [b"2"] * 9)


@in_virtual_time
async def test_other_work_gets_the_event_loop_after_each_metric() -> None:
    turns = [0]

    async def others() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    registry = CollectorRegistry()
    for number in range(10):
        Gauge(f"metric_{number}", "With labels.", ["a"], registry=registry).labels("<b>").set(number)
    working = asyncio.create_task(others())
    found = await in_pieces(registry)
    working.cancel()
    assert found == generate_latest(registry)
    assert turns[0] >= 10
