"""The ports with TLS under attack by callers that nobody knows: the one for callers off the node, and that of gRPC.

Each attack is a connection of its own, chosen from a seed. Meanwhile an ordinary scheduler calls the verbs.
"""

import asyncio
import contextlib
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import grpc

from extender.faces.grpc.server import METHOD, SERVICE
from tests.hostile.findings import Finding, Findings
from tests.hostile.report import MEMORY, Bound, bound_lines
from tests.hostile.runner import Others, Waited
from tests.hostile.scene import scene
from tests.hostile.service import RunningService, running
from tests.kit.certificates import Authority
from tests.kit.measure import MEGABYTE, percentile
from tests.kit.process import free_port
from tests.kit.servers.raw import RawApiServer, load_all

_AT_ONCE: Final = 16
_SECONDS: Final = 2.0
"""That an attack lasts at most."""

_CALM: Final = 5.0
_ANSWER_SECONDS: Final = 10.0
_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAMES: Final = 10
"""Types of HTTP/2 frames."""


@dataclass(frozen=True, slots=True)
class Target:
    """A port with TLS, as a client sees it."""

    name: str
    port: int
    authority: Authority

    def tls(self, *protocols: str) -> ssl.SSLContext:
        """TLS of a client that trusts the port, with these protocols (ALPN)."""
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context


@dataclass(slots=True)
class ListenersOutcome:
    """What was seen.

    Attributes:
        counts: how often each attack was made.
        calm, attacked: the calls of the others before, and meanwhile.
        peak: the most bytes in memory.
        after: what a well-behaved caller of each port got afterwards.
    """

    counts: dict[str, int] = field(default_factory=dict)
    calm: list[Waited] = field(default_factory=list)
    attacked: list[Waited] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    peak: int = 0
    after: dict[str, str] = field(default_factory=dict)


# --- attacks ------------------------------------------------------------------------------------------------

Attack = Callable[[Target, Random], Awaitable[None]]


@contextlib.asynccontextmanager
async def _connected(
    target: Target, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, with TLS if there is a context; it is aborted in the end."""
    host = "127.0.0.1" if context else None
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port, ssl=context, server_hostname=host)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def _client_hello(context: ssl.SSLContext) -> bytes:
    """The first bytes of a handshake."""
    outgoing = ssl.MemoryBIO()
    side = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        side.do_handshake()
    return outgoing.read()


async def _random_bytes(target: Target, random: Random) -> None:
    async with _connected(target) as (reader, writer):
        writer.write(random.randbytes(random.choice((1, 5, 1000, 100_000))))
        await writer.drain()
        await reader.read()


async def _half_a_handshake(target: Target, random: Random) -> None:
    """The beginning of a handshake, and then nothing."""
    hello = _client_hello(target.tls())
    async with _connected(target) as (reader, writer):
        writer.write(hello[: random.randrange(1, len(hello))])
        await reader.read()


async def _changed_handshake(target: Target, random: Random) -> None:
    hello = bytearray(_client_hello(target.tls()))
    for _ in range(random.randrange(1, 20)):
        hello[random.randrange(len(hello))] = random.randrange(256)
    async with _connected(target) as (reader, writer):
        writer.write(hello)
        await reader.read()


async def _nothing_after_the_handshake(target: Target, random: Random) -> None:
    async with _connected(target, target.tls("h2", "http/1.1")) as (reader, _):
        if random.random() < 0.5:
            await reader.read()


async def _without_tls(target: Target, _: Random) -> None:
    async with _connected(target) as (reader, writer):
        writer.write(b"GET /devices HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.read()


async def _huge_head(target: Target, random: Random) -> None:
    async with _connected(target, target.tls()) as (reader, writer):
        writer.write(b"GET /devices HTTP/1.1\r\nhost: x\r\n")
        for number in range(200):
            writer.write(b"x-%d: " % number + b"a" * random.choice((10, 10_000)) + b"\r\n")
            await writer.drain()
            if reader.at_eof():
                return
        await reader.read()


async def _slow_body(target: Target, random: Random) -> None:
    path = random.choice((b"/autoscaler/estimate", b"/explain"))
    token = random.randbytes(8).hex().encode()
    async with _connected(target, target.tls()) as (reader, writer):
        writer.write(b"POST %b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n" % (path, token))
        writer.write(b"content-length: 1000000\r\n\r\n")
        while not reader.at_eof():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.1)


async def _bad_token(target: Target, random: Random) -> None:
    tokens = (b"", b"x", b"a b", random.randbytes(20).replace(b"\r", b"").replace(b"\n", b""), b"x" * 30_000)
    async with _connected(target, target.tls()) as (reader, writer):
        for _ in range(5):
            values = random.choices(tokens, k=random.choice((1, 1, 2)))
            headers = b"".join(b"authorization: Bearer %b\r\n" % each for each in values)
            writer.write(b"GET /devices HTTP/1.1\r\nhost: x\r\n%b\r\n" % headers)
            await writer.drain()
            await reader.read(100_000)


async def _frames(target: Target, random: Random) -> None:
    """HTTP/2, with frames of random types, flags, streams and content."""
    async with _connected(target, target.tls("h2")) as (reader, writer):
        writer.write(_HELLO)
        for _ in range(random.randrange(1, 50)):
            content = random.randbytes(random.choice((0, 4, 8, 100, 16_000)))
            kind, flags, stream = random.randrange(_FRAMES), random.randrange(256), random.choice((0, 1, 3, 2**31 - 1))
            writer.write(len(content).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + content)
        await writer.drain()
        await reader.read()


async def _message(target: Target, random: Random) -> None:
    """A call of gRPC with random bytes, or with bytes that go on and on."""
    data = random.randbytes(random.choice((1, 10, 1000))) if random.random() < 0.8 else b"\x0a" * 20_000_000
    with contextlib.suppress(grpc.RpcError):
        await _call(target, data)


ATTACKS: Final[Mapping[str, Attack]] = {
    "random bytes": _random_bytes,
    "half a handshake": _half_a_handshake,
    "a changed handshake": _changed_handshake,
    "nothing after the handshake": _nothing_after_the_handshake,
    "no TLS": _without_tls,
    "a huge head": _huge_head,
    "a slow body": _slow_body,
    "bad tokens": _bad_token,
    "frames of HTTP/2": _frames,
    "a message of gRPC": _message,
}


async def attack(name: str, target: Target, random: Random) -> None:
    """One attack; that the service ends it is expected."""
    expected = (OSError, ssl.SSLError, TimeoutError, asyncio.IncompleteReadError)
    with contextlib.suppress(*expected):
        async with asyncio.timeout(_SECONDS):
            await ATTACKS[name](target, random)


# --- the run ------------------------------------------------------------------------------------------------


async def run(seed: int, number: int) -> ListenersOutcome:
    """Make a number of attacks on each port."""
    outcome, others, authority = ListenersOutcome(), Others(), Authority()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        api = load_all(RawApiServer(), scene(()))
        targets = [Target(each, free_port(), authority) for each in ("api", "grpc")]
        async with api.listening(), running(folder, api.port, _settings(folder, targets)) as service:
            async with others.calling(folder, service):
                await asyncio.sleep(1 + _CALM)
                outcome.calm = list(others.calls)
                service.reset_peak()
                await _attack_all(outcome, targets, Random(seed), number)
                outcome.attacked = others.calls[len(outcome.calm) :]
            outcome.peak = service.peak_now()
            outcome.after = {each.name: await _asked(each) for each in targets}
            _note_faults(outcome, service)
    return outcome


def _settings(folder: Path, targets: list[Target]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for each in targets:
        certificate, key = each.authority.server("127.0.0.1").write(folder, each.name)
        values = {"PORT": each.port, "CERTIFICATE": certificate, "KEY": key, "HOST": "127.0.0.1"}
        found |= {f"DRA_EXTENDER__{each.name.upper()}__{key}": str(value) for key, value in values.items()}
    return found


async def _attack_all(outcome: ListenersOutcome, targets: list[Target], random: Random, number: int) -> None:
    names = list(ATTACKS)
    chosen = [
        (names[each % len(names)], target, random.randrange(2**32)) for target in targets for each in range(number)
    ]
    random.shuffle(chosen)

    async def attacker(part: list[tuple[str, Target, int]]) -> None:
        for name, target, seed in part:
            await attack(name, target, Random(seed))
            label = f"{target.name}: {name}"
            outcome.counts[label] = outcome.counts.get(label, 0) + 1

    async with asyncio.TaskGroup() as attackers:
        for start in range(_AT_ONCE):
            attackers.create_task(attacker(chosen[start::_AT_ONCE]))


async def _asked(target: Target) -> str:
    """What a well-behaved caller gets: a refusal of the port for callers off the node, an answer of gRPC."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            if target.name == "grpc":
                await _call(target, b"")
                return "OK"
            async with _connected(target, target.tls()) as (reader, writer):
                writer.write(b"GET /devices HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
                return (await reader.readline()).decode().strip()
    except (OSError, TimeoutError, grpc.RpcError) as error:
        return f"{type(error).__name__}: {error}"


async def _call(target: Target, data: bytes) -> None:
    credentials = grpc.ssl_channel_credentials(target.authority.pem)
    async with grpc.aio.secure_channel(f"127.0.0.1:{target.port}", credentials) as channel:
        await channel.unary_unary(f"/{SERVICE}/{METHOD}")(data, timeout=_SECONDS)


def _note_faults(outcome: ListenersOutcome, service: RunningService) -> None:
    for signature, text in service.faults():
        outcome.findings.add(Finding(signature, "", "an attack on a port", len(text), text))
    if not service.alive:
        outcome.findings.add(Finding("the process has ended", "", "an attack on a port", 0))


# --- the report ---------------------------------------------------------------------------------------------


def lines(outcome: ListenersOutcome) -> Iterator[str]:
    """What was done, and how long the others waited."""
    yield f"attacks on ports with TLS: {sum(outcome.counts.values()):,} ({len(outcome.counts)} kinds)"
    for name, calls in (("in calm", outcome.calm), ("meanwhile", outcome.attacked)):
        seconds = sorted(each.seconds for each in calls)
        p50, p99 = (percentile(seconds, share) * 1e3 for share in (50, 99))
        longest = seconds[-1] * 1e3
        yield f"others, {name}: {len(calls):,} calls, p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {longest:.1f} ms"


def bounds(outcome: ListenersOutcome) -> list[Bound]:
    """What must hold."""
    unanswered = sum(1 for each in outcome.attacked if each.fault)
    memory = f"{outcome.peak / MEGABYTE:.0f} MB (limit {MEMORY / MEGABYTE:.0f} MB)"
    after = {"api": "HTTP/1.1 401 Unauthorized", "grpc": "OK"}
    return [
        Bound(f"faults of the service: {len(outcome.findings)} (none allowed)", not outcome.findings),
        Bound(f"calls of others without their answer: {unanswered} (none allowed)", not unanswered),
        Bound(f"most memory: {memory}", outcome.peak < MEMORY),
        Bound(f"answers to well-behaved callers afterwards: {outcome.after}", outcome.after == after),
    ]


def main(seed: int, number: int) -> list[Bound]:
    """Run, report, and judge; returns the bounds."""
    # asyncio warns of attacks that go on writing after the service has ended their connection, as it should.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    outcome = asyncio.run(run(seed, number))
    print(*lines(outcome), sep="\n")
    for each in outcome.findings:
        print(f"FAULT: {each.signature}\n{each.detail[-3000:]}")
    found = bounds(outcome)
    print(*bound_lines(found), sep="\n")
    return found
