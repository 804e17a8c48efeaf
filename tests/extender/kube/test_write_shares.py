"""Writes that are slow in admission leave connections to the writes of other namespaces."""

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from extender.kube.api import ObjectKey, UnreachableError
from extender.kube.connection.transport import HttpReply, HttpRequest, Stream
from extender.kube.discovery import Served
from extender.kube.remote import MOST_WRITES, WAITING_SECONDS, RemoteApi, RequestTiming
from extender.kube.resources import PODS
from tests.kit import virtualtime


class Slow:
    """A transport to an API server whose webhooks take a second for each write to one namespace."""

    def __init__(self) -> None:
        self.open = self.most = 0

    async def call(self, request: HttpRequest) -> HttpReply:
        if "/namespaces/slow/" in request.path:
            self.open += 1
            self.most = max(self.most, self.open)
            await virtualtime.elapse(1)
            self.open -= 1
        return HttpReply(200, b"{}", 0.0)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[Stream]:
        raise NotImplementedError(request.path)


class Stuck(Slow):
    """A transport on which the first writes to one namespace never get their answer."""

    async def call(self, _: HttpRequest) -> HttpReply:
        self.open += 1
        if self.open <= MOST_WRITES:
            await asyncio.get_running_loop().create_future()
        return HttpReply(200, b"{}", 0.0)


async def write(api: RemoteApi, namespace: str, name: str) -> None:
    await api.patch_status(PODS, ObjectKey(namespace, name), {"status": {}})


def test_slow_writes_of_a_namespace_wait_for_each_other_and_others_for_none_of_them() -> None:
    async def story() -> None:
        slow = Slow()
        api = RemoteApi(slow, Served({"Pod": "v1"}), random=lambda: 0.5)
        loop = asyncio.get_running_loop()
        writes = [loop.create_task(write(api, "slow", f"p{number}")) for number in range(3 * MOST_WRITES)]
        await virtualtime.elapse(0.1)
        began = loop.time()
        await write(api, "quick", "q")
        assert loop.time() == began
        await asyncio.gather(*writes)
        assert slow.most == MOST_WRITES
        assert loop.time() < 3.2

    virtualtime.run(story())


def test_a_write_that_gets_no_turn_in_time_is_not_sent_and_says_so() -> None:
    async def story() -> None:
        stuck, timing = Stuck(), RequestTiming(call_seconds=1000.0)
        api = RemoteApi(stuck, Served({"Pod": "v1"}), random=lambda: 0.5, timing=timing)
        loop = asyncio.get_running_loop()
        first = [loop.create_task(write(api, "slow", f"p{number}")) for number in range(MOST_WRITES)]
        await virtualtime.elapse(1)
        began = loop.time()
        reason = "PATCH .*/pods/p/status: not sent within 30 s: other writes of namespace slow are slow"
        with pytest.raises(UnreachableError, match=reason):
            await write(api, "slow", "p")
        assert (loop.time() - began, stuck.open) == (WAITING_SECONDS, MOST_WRITES)
        first[0].cancel()
        await virtualtime.elapse(1)
        await write(api, "slow", "p")
        for each in first:
            each.cancel()
        await asyncio.gather(*first, return_exceptions=True)

    virtualtime.run(story())
