"""A verb on HTTP: where its bodies are decoded and encoded."""

import asyncio
import gc
import threading
import weakref

import pytest
from httpx import ASGITransport, AsyncClient
from prometheus_client import CollectorRegistry

from extender.faces.http.limits.bodies import FREE_BYTES, LOOKED_BYTES, MOST_OBJECTS, UNCOUNTED_BYTES, Bodies
from extender.faces.http.verb_endpoints import Application, Endpoints
from extender.faces.tracing.tracing import UNTRACED
from extender.framework.metrics import Metrics
from extender.framework.verb import Doc, Verb
from extender.framework.wire import WireError
from extender.tools.fairness.places import MOST_WAITING, CrowdedError
from extender.tools.fairness.turns import CREDIT_SECONDS
from extender.tools.intake import Budget, Source, json_weight
from extender.tools.offload import at_once
from tests.kit import virtualtime

ENOUGH = 10.0
"""Seconds after which a test that waits for a thread has failed."""


def on_loop() -> bool:
    return threading.current_thread() is threading.main_thread()


async def echo(_: None, asked: bool) -> bool:
    return asked


@pytest.mark.parametrize(
    ("sent", "has_whole_objects", "decoded_on_loop", "encoded_on_loop"),
    [
        (b"x", False, True, True),
        (b"x", True, False, True),
        (b"x" * (FREE_BYTES + 1), False, False, False),
        (b'"node-0",' * 5_000, False, True, True),
        (b'{"a":1},' * MOST_OBJECTS, False, True, True),
        (b'{"a":1},' * (LOOKED_BYTES // 8 + 1), False, False, True),
    ],
    ids=["a short body", "whole objects", "a long body", "names", "some objects", "many objects"],
)
async def test_what_may_take_long_leaves_the_event_loop(
    sent: bytes,
    has_whole_objects: bool,
    decoded_on_loop: bool,
    encoded_on_loop: bool,
) -> None:
    verb: Verb[None, bool, bool] = Verb(
        "where",
        lambda _: on_loop(),
        echo,
        lambda asked, _: b"%d %d" % (asked, on_loop()),
        Doc("Where is a body decoded and encoded?", {}, {}),
        has_whole_objects=has_whole_objects,
    )
    app = Application()
    endpoints = Endpoints(Metrics(CollectorRegistry()), UNTRACED, lambda: 0.0, Bodies(2 * FREE_BYTES, Budget()), 5.0)
    app.add_verb(endpoints.route("/where", "where", verb, lambda _: None, "verbs"))
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        found = await client.post("/where", content=sent)
    assert found.content == b"%d %d" % (decoded_on_loop, encoded_on_loop)


async def test_a_body_takes_its_room_until_it_is_decoded_although_its_call_is_over() -> None:
    begun, go = threading.Event(), threading.Event()

    def decode(_body: bytes) -> bool:
        begun.set()
        return go.wait(ENOUGH)

    verb: Verb[None, bool, bool] = Verb(
        "wait", decode, echo, lambda _, __: b"", Doc("?", {}, {}), has_whole_objects=True
    )
    bodies, body = Bodies(2 * FREE_BYTES, Budget()), b"x" * (FREE_BYTES + 1)
    app, endpoints = Application(), Endpoints(Metrics(CollectorRegistry()), UNTRACED, lambda: 0.0, bodies, 5.0)
    app.add_verb(endpoints.route("/wait", "wait", verb, lambda _: None, "verbs"))
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        calling = asyncio.create_task(client.post("/wait", content=body))
        assert await asyncio.to_thread(begun.wait, ENOUGH)
        calling.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (bodies.taken, bodies.budget.taken[Source.REQUESTS]) == (len(body) - UNCOUNTED_BYTES, json_weight(body))
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert (bodies.taken, bodies.budget.taken[Source.REQUESTS]) == (0, 0)


async def test_bodies_are_decoded_one_at_a_time_in_turns_of_their_callers() -> None:
    times, order = iter(range(1000)), list[bytes]()
    bodies = Bodies(1, Budget(), clock=lambda: next(times) * CREDIT_SECONDS)
    begun, go = threading.Event(), threading.Event()

    def decode(name: bytes) -> None:
        order.append(name)
        begun.set()
        assert go.wait(ENOUGH)

    first = asyncio.create_task(bodies.decoded("greedy", decode, b"first"))
    assert await asyncio.to_thread(begun.wait, ENOUGH)
    waiting = [
        asyncio.create_task(bodies.decoded("greedy", decode, b"greedy %d" % each)) for each in range(MOST_WAITING)
    ]
    await asyncio.sleep(0)
    with pytest.raises(CrowdedError):
        await bodies.decoded("greedy", decode, b"one too many")
    waiting.append(asyncio.create_task(bodies.decoded("other", decode, b"other")))
    await asyncio.sleep(0)
    assert order == [b"first"]
    go.set()
    await asyncio.gather(first, *waiting)
    assert order[:2] == [b"first", b"other"]
    assert len(order) == MOST_WAITING + 2


@pytest.mark.parametrize(
    ("source", "size", "are_together", "began"),
    [
        (Source.REQUESTS, FREE_BYTES + 1, True, [0.0, 2.0, 4.0]),
        (Source.REQUESTS, FREE_BYTES + 1, False, [0.0, 2.0, 4.0]),
        (Source.REQUESTS, FREE_BYTES, True, [0.0, 6.0, 12.0]),
        (Source.SCHEDULERS, FREE_BYTES + 1, True, [0.0, 2.0, 4.0]),
        (Source.SCHEDULERS, FREE_BYTES + 1, False, [0.0, 0.0, 0.0]),
        (Source.SCHEDULERS, FREE_BYTES, True, [0.0, 6.0, 12.0]),
    ],
    ids=[
        "requests together",
        "requests one by one",
        "short requests",
        "schedulers together",
        "a scheduler one by one",
        "schedulers with short bodies",
    ],
)
def test_bodies_that_wait_for_each_other_leave_most_of_the_time_to_other_work(
    source: Source, size: int, are_together: bool, began: list[float]
) -> None:
    """A parser in C keeps the interpreter. The next body of a scheduler comes after the answer to the one before."""
    now, found = [0.0], list[float]()

    def decode(_body: bytes) -> None:
        found.append(asyncio.get_running_loop().time())
        now[0] += 2.0

    async def send() -> None:
        bodies = Bodies(1, Budget(), source, clock=lambda: now[0], off_loop=at_once)
        if are_together:
            await asyncio.gather(*[bodies.decoded("caller", decode, b" " * size) for _ in began])
        else:
            for _ in began:
                await bodies.decoded("caller", decode, b" " * size)

    virtualtime.run(send())
    assert found == began


async def test_what_a_refused_body_was_decoded_to_is_freed_at_once() -> None:
    """Nothing waits for Python to look for cycles."""

    class Decoded:
        """Stands for the value of a long body."""

    alive: list[weakref.ref[Decoded]] = []
    bodies = Bodies(1, Budget())

    def decode(_body: bytes) -> None:
        value = Decoded()
        alive.append(weakref.ref(value))
        raise WireError("Pod", "is a list")

    gc.disable()
    try:
        for _ in range(3):
            with pytest.raises(WireError, match="Pod: is a list"):
                await bodies.decoded("caller", decode, b"{}")
        assert [each() for each in alive] == [None] * 3
    finally:
        gc.enable()
