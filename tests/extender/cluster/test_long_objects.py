"""Long objects and answers of an API server: lists in smaller pages, room for one object at a time, nothing endless."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from extender.cluster.cluster_state import ClusterState
from extender.cluster.live import LiveCluster
from extender.kube.api import AnswerTooLongError, ObjectKey
from extender.kube.connection.connection import open_connection
from extender.kube.connection.transport import HttpRequest, LongAnswerError
from extender.kube.discovery import discover
from extender.kube.remote import PAGE_BYTES, RemoteApi
from extender.kube.resources import CLAIMS, RESOURCES
from extender.kube.watch import WatchSource
from extender.tools.intake import Budget, Source
from tests.extender.kube.live_scenes import half, make_claim
from tests.kit.servers.canned import answer, kubeconfig, serving
from tests.kit.servers.raw import Call, RawApiServer, Reply

NOTES = "x" * 255_000
TOKEN = {"token": "t"}


class Counting(RawApiServer):
    """An API server that remembers how many objects each page had."""

    def __init__(self, *, streams: bool, claims: int) -> None:
        super().__init__(streams=streams)
        self.pages: list[int] = []
        for number in range(claims):
            obj = make_claim(f"c-{number}")
            obj["metadata"] |= {"resourceVersion": "7", "annotations": {"example.com/a": NOTES, "example.com/b": NOTES}}
            self.load(CLAIMS, ("default", f"c-{number}"), orjson.dumps(obj))

    def read(self, call: Call) -> Reply:
        if call.resource == CLAIMS and "limit" in call.query:
            self.pages.append(int(call.query["limit"]))
        return super().read(call)


@asynccontextmanager
async def connected(server: RawApiServer, folder: Path) -> AsyncIterator[RemoteApi]:
    async with server.listening(), open_connection(kubeconfig(folder, f"http://127.0.0.1:{server.port}", TOKEN)) as way:
        yield RemoteApi(way, await discover(way), random=half)


async def test_a_page_that_is_too_long_is_asked_for_again_with_fewer_objects(tmp_path: Path) -> None:
    server = Counting(streams=False, claims=60)
    async with connected(server, tmp_path) as api:
        listing = await api.list(CLAIMS)
    assert len(listing.items) == 60
    short = [size for size in server.pages if size * 2 * len(NOTES) < PAGE_BYTES]
    assert len(short) >= 4, "30 MB in pages of 8 at most"
    assert len(server.pages) < 25


async def test_pages_are_as_long_as_before_where_objects_are_short(tmp_path: Path) -> None:
    server = Counting(streams=False, claims=20)
    async with connected(server, tmp_path) as api:
        await api.list(CLAIMS)
        for number in range(20):
            server.load(CLAIMS, ("default", f"c-{number}"), orjson.dumps(make_claim(f"c-{number}")))
        for _ in range(8):
            await api.list(CLAIMS)
    assert server.pages[-1] == 500


async def test_an_answer_that_does_not_end_is_no_answer(tmp_path: Path) -> None:
    request = HttpRequest("GET", "/api", most_bytes=1_000_000)
    async with (
        serving(answer(200, b"x" * 3_000_000)) as server,
        open_connection(kubeconfig(tmp_path, server.url, TOKEN)) as way,
    ):
        with pytest.raises(LongAnswerError, match="more than 1000000 bytes"):
            await way.call(request)


async def test_an_object_that_is_longer_than_any_is_not_asked_for_again(tmp_path: Path) -> None:
    server = Counting(streams=False, claims=0)
    server.load(CLAIMS, ("default", "endless"), b" " * 70_000_000)
    async with connected(server, tmp_path) as api:
        with pytest.raises(AnswerTooLongError):
            await api.get(CLAIMS, ObjectKey("default", "endless"))
        assert api.repeats == 0


@pytest.mark.parametrize("streams", [True, False])
async def test_long_objects_are_taken_in_one_after_the_other(tmp_path: Path, *, streams: bool) -> None:
    """The budget has room for one object at a time, and no more than that is taken."""
    budget, state = Budget(16_000_000), ClusterState()
    server = Counting(streams=streams, claims=20)
    async with connected(server, tmp_path) as api:
        cluster = LiveCluster(api, random=half, budget=budget)
        following = asyncio.create_task(cluster.run(state, tuple(RESOURCES.values())))
        async with asyncio.timeout(60):
            await state.passed(CLAIMS, 1000)
            changed = make_claim("late")
            changed["metadata"] |= {"resourceVersion": "1001", "annotations": {"example.com/a": NOTES}}
            await server.followed(CLAIMS, 1000, 30)
            server.tell(CLAIMS, "ADDED", orjson.dumps(changed))
            await state.passed(CLAIMS, 1001)
        await asyncio.sleep(0)
        assert len(state.snapshot.claims) == 21
        assert not any(budget.taken.values())
        following.cancel()
        await asyncio.wait([following])


async def test_an_object_waits_until_there_is_room_for_it(tmp_path: Path) -> None:
    budget = Budget(16_000_000)
    server = Counting(streams=True, claims=1)
    async with connected(server, tmp_path) as api:
        source = WatchSource(api, random=half, budget=budget)
        async with budget.waiting(Source.API_SERVER, budget.share(Source.API_SERVER)):
            signals = source.signals(CLAIMS, None)
            first = asyncio.ensure_future(anext(signals))
            done, _ = await asyncio.wait([first], timeout=0.2)
            assert not done
        async with asyncio.timeout(10):
            await first
        await signals.aclose()
    assert not any(budget.taken.values())
