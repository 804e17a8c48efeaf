"""A reverse proxy before an API server, by which tests make the network and the server fail at a chosen request.

Whoever is to suffer gets `Proxy.url` in its kubeconfig. What no rule is about passes as it is, watches bit by bit.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol, TypeAlias

import httpx
import orjson
from aiohttp import ClientConnectionResetError, web

from tests.kit.controlplane.access import Access
from tests.kit.controlplane.client import WAIT_SECONDS
from tests.kit.process import free_port

CLAIM: Final = r".*/resourceclaims/[^/]+"
CLAIM_STATUS: Final = rf"{CLAIM}/status"
CLAIMS_WATCH: Final = r".*/resourceclaims\?.*watch=true.*"
WATCH: Final = r".*\?.*watch=true.*"
POD_STATUS: Final = r".*/pods/[^/]+/status"
BINDING: Final = r".*/pods/[^/]+/binding"
ANYTHING: Final = r".*"

_CONNECT_SECONDS: Final = 5.0
_OUR_OWN: Final = frozenset(
    {"accept-encoding", "authorization", "connection", "content-length", "host", "keep-alive", "transfer-encoding"}
)

_REASONS: Final = {
    HTTPStatus.CONFLICT: "Conflict",
    HTTPStatus.GONE: "Expired",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
}


class StreamCutError(Exception):
    """The connection of a watch breaks now."""


class Reply(NamedTuple):
    """A complete answer; of which the asker may get only the first half."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_half: bool = False


@dataclass(slots=True, eq=False)
class Exchange:
    """One request, and what a rule does with it. What it has not replied to in the end is cut."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    _upstream: httpx.AsyncClient
    answer: Reply | None = None

    def prepared(self) -> httpx.Request:
        """The request as the API server gets it."""
        return self._upstream.build_request(self.method, self.target, headers=self.headers, content=self.body)

    async def forward(self) -> Reply:
        """Have the API server do what is asked; its whole answer, which is not passed on yet."""
        answer = await self._upstream.send(self.prepared())
        return Reply(answer.status_code, _passed_on(answer.headers), answer.content)

    def reply(self, reply: Reply) -> None:
        """What the asker gets."""
        self.answer = reply


Action: TypeAlias = Callable[[Exchange], Awaitable[None]]


async def cut_before(exchange: Exchange) -> None:
    """The connection breaks before the API server has seen the request."""


async def cut_after(exchange: Exchange) -> None:
    """The request is done, and its answer lost."""
    await exchange.forward()


async def half(exchange: Exchange) -> None:
    """The request is done, and the connection breaks within its answer."""
    exchange.reply((await exchange.forward())._replace(is_half=True))


def refuse(status: HTTPStatus, *, retry_after: int | None = None) -> Action:
    """The API server refuses without having looked.

    Args:
        retry_after: seconds, for the header of that name.
    """
    headers = {"Content-Type": "application/json"}
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)

    async def act(exchange: Exchange) -> None:
        exchange.reply(Reply(status, headers, orjson.dumps(_refusal(status))))

    return act


def end_watch(status: HTTPStatus) -> Action:
    """A watch begins, and has an error as its only event."""
    event = orjson.dumps({"type": "ERROR", "object": _refusal(status)}) + b"\n"

    async def act(exchange: Exchange) -> None:
        exchange.reply(Reply(HTTPStatus.OK, {"Content-Type": "application/json"}, event))

    return act


@dataclass(slots=True)
class Hold:
    """An action that keeps a request until it is released, and then lets it pass, whoever still waits for it."""

    _held: asyncio.Event = field(default_factory=asyncio.Event)
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _landed: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, exchange: Exchange) -> None:
        self._held.set()
        await self._released.wait()
        exchange.reply(await exchange.forward())
        self._landed.set()

    async def held(self) -> None:
        """Wait until there is a request to be held."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self._held.wait()

    async def release(self) -> None:
        """Let it go on, and wait until the API server has answered."""
        self._released.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await self._landed.wait()


@dataclass(slots=True)
class Rule:
    """What is done with some requests of a method whose target (path and query) matches.

    Attributes:
        nth: the first of them that it is done with.
        times: with how many.
        met: how many have come.
    """

    method: str
    target: re.Pattern[str]
    action: Action
    nth: int
    times: int
    met: int = 0
    _followed: asyncio.Event = field(default_factory=asyncio.Event)

    def applies(self, method: str, target: str) -> bool:
        """Whether it is to be done with this request, which is counted."""
        if method != self.method or not self.target.fullmatch(target):
            return False
        self.met += 1
        return self.nth <= self.met < self.nth + self.times

    async def act(self, exchange: Exchange) -> None:
        """Do it."""
        try:
            await self.action(exchange)
        finally:
            if self.met >= self.nth + self.times - 1:
                self._followed.set()

    async def followed(self) -> None:
        """Wait until it has been done for the last time.

        Raises:
            TimeoutError: too few such requests come.
        """
        async with asyncio.timeout(WAIT_SECONDS):
            await self._followed.wait()


class Weather(Protocol):
    """What befalls by chance what no rule is about."""

    def action(self, exchange: Exchange) -> Action | None:
        """What is done with a request; None: it passes."""
        ...

    def passed(self, chunk: bytes) -> AsyncIterator[bytes]:
        """What comes of a part of a watch. Raises StreamCutError: the connection breaks."""
        ...


class Proxy:
    """Rules, and what flows meanwhile.

    Attributes:
        url: where it listens; plain HTTP on loopback.
        weather: befalls what no rule is about; None: all of it passes.
    """

    def __init__(self, upstream: httpx.AsyncClient, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.weather: Weather | None = None
        self._upstream = upstream
        self._rules: list[Rule] = []
        self._silent: list[re.Pattern[str]] = []
        self._noise = asyncio.Condition()
        self._streams: dict[Exchange, web.BaseRequest] = {}

    def on(self, method: str, target: str, action: Action, *, nth: int = 1, times: int = 1) -> Rule:
        """Do something with requests to come.

        Args:
            target: a regular expression that path and query match as a whole. Requests that an earlier rule is about
                don't count.
            nth: the first of these requests that it is done with; those before pass.
            times: with how many from there on.
        """
        rule = Rule(method, re.compile(target), action, nth, times)
        self._rules.append(rule)
        return rule

    @asynccontextmanager
    async def silence(self, target: str) -> AsyncIterator[None]:
        """Nothing is passed on, neither way, and nothing is closed: the network is gone without a word."""
        pattern = re.compile(target)
        self._silent.append(pattern)
        try:
            yield
        finally:
            self._silent.remove(pattern)
            async with self._noise:
                self._noise.notify_all()

    def cut_streams(self, target: str) -> int:
        """Break the watches that run; how many."""
        found = [request for exchange, request in self._streams.items() if re.fullmatch(target, exchange.target)]
        for request in found:
            _abort(request)
        return len(found)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve one request."""
        exchange = Exchange(
            request.method,
            str(request.rel_url),
            _passed_on(request.headers),
            await request.read(),
            self._upstream,
        )
        rule = next((each for each in self._rules if each.applies(exchange.method, exchange.target)), None)
        await self._audible(exchange.target)
        try:
            if rule is not None:
                return await self._follow(rule.act, request, exchange)
            if self.weather is not None and (action := self.weather.action(exchange)) is not None:
                return await self._follow(action, request, exchange)
            return await self._pass(request, exchange)
        except (httpx.TransportError, ClientConnectionResetError, StreamCutError):
            _abort(request)
            return web.Response()

    async def _follow(self, act: Action, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        await act(exchange)
        if exchange.answer is None:
            _abort(request)
            return web.Response()
        status, headers, body, is_half = exchange.answer
        if is_half:
            response = web.StreamResponse(status=status, headers={**headers, "Content-Length": str(len(body))})
            await response.prepare(request)
            await response.write(body[: len(body) // 2])
            _abort(request)
            return response
        return web.Response(status=status, headers=headers, body=body)

    async def _pass(self, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        answer = await self._upstream.send(exchange.prepared(), stream=True)
        try:
            response = web.StreamResponse(status=answer.status_code, headers=_passed_on(answer.headers))
            await response.prepare(request)
            self._streams[exchange] = request
            async for chunk in answer.aiter_raw():
                await self._audible(exchange.target)
                async for part in self._in_weather(exchange, chunk):
                    await response.write(part)
            await response.write_eof()
        finally:
            self._streams.pop(exchange, None)
            await answer.aclose()
        return response

    async def _in_weather(self, exchange: Exchange, chunk: bytes) -> AsyncIterator[bytes]:
        if self.weather is None or "watch=true" not in exchange.target:
            yield chunk
            return
        async for part in self.weather.passed(chunk):
            yield part

    async def _audible(self, target: str) -> None:
        async with self._noise:
            await self._noise.wait_for(lambda: not any(each.fullmatch(target) for each in self._silent))


@asynccontextmanager
async def proxy(access: Access) -> AsyncIterator[Proxy]:
    """A proxy before the API server of ``access``, in the running event loop; whoever asks it is that user.

    Kubernetes' own clients send no tokens without TLS.
    """
    trusted = ssl.create_default_context(cafile=access.certificate)
    async with httpx.AsyncClient(
        base_url=access.url,
        headers={"Authorization": f"Bearer {access.token}", "Accept-Encoding": "identity"},
        verify=trusted,
        timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
        limits=httpx.Limits(max_connections=None),
        trust_env=False,
    ) as upstream:
        port = free_port()
        running = Proxy(upstream, port)
        runner = web.ServerRunner(web.Server(running.handle, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            yield running
        finally:
            await runner.cleanup()


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OUR_OWN}


def _refusal(status: HTTPStatus) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": status,
        "reason": _REASONS[status],
        "message": f"{status.phrase}, says the test",
    }
