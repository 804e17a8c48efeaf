"""Writes that are slow in admission leave connections to the writes of other namespaces."""

import asyncio
from contextlib import AbstractAsyncContextManager

from extender.kube.api import ObjectKey
from extender.kube.connection.transport import HttpReply, HttpRequest, Stream
from extender.kube.connection.write_shares import MOST_WRITES
from extender.kube.discovery import Served
from extender.kube.remote import RemoteApi
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
