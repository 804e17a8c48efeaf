"""Whatever comes from outside and is long waits for its turn to be decoded, wherever it comes from."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

import pytest
from grpc import RpcError

from extender.faces.http.bodies import FREE_BYTES, LOOKED_BYTES, Bodies
from extender.kube.resources import CLAIMS
from extender.kube.watch import WatchSource
from extender.plugins.negotiation.http import HttpController
from extender.tools.intake import Budget, Source
from tests.extender.faces.grpc.scenes import call, serving
from tests.extender.faces.grpc.test_expander_grpc import NODES, autoscaler
from tests.extender.kube.live_scenes import api_over, half, make_claim
from tests.extender.plugins.negotiation.test_controllers_http import NODES as QUESTION
from tests.extender.plugins.negotiation.test_controllers_http import NOTHING_UNSUITABLE, settings
from tests.kit.protobuf import request
from tests.kit.servers.canned import answer
from tests.kit.servers.canned import serving as answering
from tests.kit.servers.transport import FakeApi

LONG = " " * 100_000
ENOUGH = 20.0
T = TypeVar("T")


async def a_body_of_a_scheduler(budget: Budget) -> None:
    await Bodies(1, budget, Source.SCHEDULERS).decoded("", len, b" " * (FREE_BYTES + 1))


async def a_body_of_others(budget: Budget) -> None:
    await Bodies(1, budget).decoded("", len, b" " * (LOOKED_BYTES + 1))


async def a_message_of_grpc(budget: Budget) -> None:
    pods = [{"metadata": {"name": f"p{number}", "annotations": {"a": LONG}}, "spec": {}} for number in range(2)]
    async with serving(autoscaler(), budget=budget) as address:
        await call(address, request({"big": (1, pods)}, NODES))


async def an_answer_of_a_controller(budget: Budget) -> None:
    async with answering(answer(200, NOTHING_UNSUITABLE + LONG.encode())) as server:
        controller = HttpController(settings(server.url), budget)
        await controller.ask(QUESTION)
        await controller.close()


async def an_object_of_the_api_server(budget: Budget) -> None:
    fake = FakeApi()
    fake.put(CLAIMS, make_claim("c", long=LONG))
    async with aclosing(WatchSource(api_over(fake), random=half, budget=budget).signals(CLAIMS, None)) as signals:
        async for _ in signals:
            break


@pytest.mark.parametrize(
    "send",
    [
        a_body_of_a_scheduler,
        a_body_of_others,
        a_message_of_grpc,
        an_answer_of_a_controller,
        an_object_of_the_api_server,
    ],
)
async def test_long_inputs_of_every_source_wait_for_one_that_is_decoded(
    send: Callable[[Budget], Awaitable[None]],
) -> None:
    budget = Budget()
    async with asyncio.timeout(ENOUGH):
        async with budget.decoding.turn("another"):
            sending = asyncio.ensure_future(send(budget))
            for _ in iter(lambda: len(budget.decoding), 1):
                await asyncio.sleep(0)
            assert not sending.done()
        await sending


async def test_a_long_message_is_decoded_while_searches_have_all_of_their_threads() -> None:
    async def busy(work: Callable[[], T]) -> T:
        raise AssertionError(f"{work} would wait for searches")

    budget, node = Budget(), {"metadata": {"name": "n", "annotations": {"a": LONG}}}
    async with serving(replace(autoscaler(), off_loop=busy), budget=budget) as address:
        with pytest.raises(RpcError, match="no node of node group"):
            await call(address, request({"big": (1, [])}, {"other": node}))


async def test_short_inputs_wait_for_none_that_is_long() -> None:
    budget = Budget()
    async with asyncio.timeout(ENOUGH), budget.decoding.turn("another"):
        assert await Bodies(1, budget).decoded("", len, b" " * LOOKED_BYTES) == LOOKED_BYTES
        async with serving(autoscaler(), budget=budget) as address:
            await call(address, request({"big": (1, [])}, NODES))
        async with answering(answer(200, NOTHING_UNSUITABLE)) as server:
            controller = HttpController(settings(server.url), budget)
            await controller.ask(QUESTION)
            await controller.close()
