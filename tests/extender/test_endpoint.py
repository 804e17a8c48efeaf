"""A verb on HTTP: where its bodies are decoded and encoded."""

import asyncio
import gc
import threading
import weakref

import pytest
from httpx import ASGITransport, AsyncClient
from prometheus_client import CollectorRegistry

from extender.http.limits.bodies import FREE_BYTES, UNCOUNTED_BYTES, Bodies
from extender.http.verb_endpoints import Application, Endpoints, decoded_in_thread
from extender.metrics.groups import Metrics
from extender.tools.intake import Budget, Source, json_weight
from extender.tracing.tracing import UNTRACED
from extender.verbs.verb import Doc, Verb
from extender.verbs.wire import WireError

ENOUGH = 10.0
"""Seconds after which a test that waits for a thread has failed."""


def on_loop() -> bool:
    return threading.current_thread() is threading.main_thread()


async def echo(_: None, asked: bool) -> bool:
    return asked


@pytest.mark.parametrize(
    ("size", "has_whole_objects", "decoded_on_loop", "encoded_on_loop"),
    [(1, False, True, True), (1, True, False, True), (FREE_BYTES + 1, False, False, False)],
    ids=["a short body", "whole objects", "a long body"],
)
async def test_what_may_take_long_leaves_the_event_loop(
    size: int,
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
        found = await client.post("/where", content=b"x" * size)
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


async def test_what_a_refused_body_was_decoded_to_is_freed_at_once() -> None:
    """Nothing waits for Python to look for cycles."""

    class Decoded:
        """Stands for the value of a long body."""

    alive: list[weakref.ref[Decoded]] = []

    def decode(_body: bytes) -> None:
        value = Decoded()
        alive.append(weakref.ref(value))
        raise WireError("Pod", "is a list")

    gc.disable()
    try:
        for _ in range(3):
            with pytest.raises(WireError, match="Pod: is a list"):
                await decoded_in_thread(decode, b"{}")
        assert [each() for each in alive] == [None] * 3
    finally:
        gc.enable()
