"""``python -m tests.hostile.memory``: the service in a gibibyte of memory while bombs go off; see docs/reliability.md.

The service runs over a made-up cluster with 40,000 devices, in a cgroup of its own with a limit of memory. Bombs are
inputs that are short where they come from and take much memory where they are read, or many inputs at once. They come
one after the other and then all at the same time, while an ordinary scheduler calls filter. Ends with status 1 if a
bound is broken. ``--short`` has a tenth of the cluster and counts latencies as ratios.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import grpc
import orjson
import uvloop
import yaml

from extender.faces.grpc.server import METHOD, SERVICE
from extender.kube.api import RawObject
from extender.kube.resources import CLAIMS, CLASSES, PODS, TEMPLATES, Resource
from tests.hostile.exchange import AnswerError, exchange
from tests.hostile.report import Bound
from tests.hostile.runner import Others, Waited
from tests.hostile.service import RunningService
from tests.kit.measure import MEGABYTE, machine, percentile
from tests.kit.memory_cgroup import MemoryCgroup, NoCgroupError, memory_cgroup
from tests.kit.objects import synthetic
from tests.kit.objects.parts import DRIVER, api_object, claim_spec, exactly, of_driver
from tests.kit.objects.worlds import Wish, pending_claim, waiting_pod
from tests.kit.process import free_port
from tests.kit.servers.canned import answer, serving
from tests.kit.servers.synthetic import Sizes, SyntheticApiServer

LIMIT: Final = 1024 * 1024 * 1024
P99_SECONDS: Final = 0.050
STALL_SECONDS: Final = 0.150
GROWTH: Final = 1.10
P99_RATIO: Final = 40.0
"""To the p99 without bombs: what counts in the short form, on machines of any speed."""

_FULL: Final = Sizes(nodes=5000, claims=20_000, pods=50_000, pods_with_claims=10_000, waiting=0, events=0)
_SHORT: Final = Sizes(nodes=500, claims=2_000, pods=5_000, pods_with_claims=1_000, waiting=0, events=0)
_ORDINARY: Final = 20
_NAMES: Final = 1000
_RATE: Final = 20.0
"""Calls of the ordinary scheduler a second."""

_CALM_SECONDS: Final = 10.0
_START_SECONDS: Final = 600.0
_SETTLE_SECONDS: Final = 20.0
_SETTLE_LOOKS: Final = 40
_SETTLED: Final = 1.05
_BETWEEN_SECONDS: Final = 0.005
_ANSWER_SECONDS: Final = 30.0
_CONTROLLER: Final = "bomb.example.com"
_MIB: Final = 1024 * 1024


# --- the cluster ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class BombedApiServer(SyntheticApiServer):
    """Objects come and go as bombs want it."""

    def add(self, resource: Resource, key: tuple[str, str], text: bytes) -> None:
        """An object comes, or changes; ``%d`` in its text is its revision."""
        text = text.replace(b'"%d"', b'"%d"' % (self.revision + 1))
        self.load(resource, key, text)
        self.tell(resource, "MODIFIED", text)

    def remove(self, resource: Resource, key: tuple[str, str]) -> None:
        """An object goes."""
        metadata = {"namespace": key[0], "name": key[1], "resourceVersion": str(self.revision + 1)}
        text = {"apiVersion": resource.api_versions()[0], "kind": resource.kind, "metadata": metadata}
        self.unload(resource, key)
        self.tell(resource, "DELETED", orjson.dumps(text))


def _ordinary(number: int) -> RawObject:
    selector = f"device.attributes['{DRIVER}'].productName.startsWith('Example A')"
    found = pending_claim(Wish(selector=selector), f"claim-{number}")
    found["metadata"] |= {"uid": f"uid-claim-{number}", "resourceVersion": "1"}
    return found


def _requests(sizes: Sizes) -> list[bytes]:
    """What an ordinary scheduler sends: filter for pods with a claim, on nodes with free devices."""
    free = range(sizes.claims // synthetic.DEVICES_PER_NODE, sizes.nodes)
    names = [synthetic.node_name(number) for number in free[:_NAMES]]
    pods = [waiting_pod(f"pod-{number}", f"claim-{number}") for number in range(_ORDINARY)]
    return [_post("/filter", orjson.dumps({"Pod": pod, "NodeNames": names})) for pod in pods]


def _post(path: str, body: bytes) -> bytes:
    head = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n"
    return head % (path.encode(), len(body)) + body


def _object(resource: Resource, name: str, **fields: object) -> bytes:
    metadata = {"uid": f"uid-{resource.kind}-{name}", "resourceVersion": "%d", **fields.pop("metadata", {})}  # type: ignore[dict-item]
    obj = api_object(resource.kind, name, namespace="tenant", metadata=metadata, **fields)
    return orjson.dumps(obj).replace(b"<", rb"\u003c")


_SPEC: Final = claim_spec([exactly("g", DRIVER)])
_NOTES: Final = "x" * 255_000
"""As long as all annotations of an object may be."""


# --- bombs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scene:
    """What a bomb can reach.

    Attributes:
        scale: how much is sent: 1 in the long form.
    """

    service: RunningService
    api: BombedApiServer
    grpc_port: int
    scale: float

    def times(self, number: int) -> int:
        """As many in the long form."""
        return max(1, round(number * self.scale))

    async def send(self, request: bytes) -> None:
        """A request, whatever its answer."""
        with contextlib.suppress(AnswerError, OSError):
            await exchange(self.service.port, request, seconds=_ANSWER_SECONDS)

    async def send_all(self, request: bytes, number: int) -> None:
        """The same request on many connections at once."""
        async with asyncio.TaskGroup() as sending:
            for _ in range(number):
                sending.create_task(self.send(request))

    async def objects(self, resource: Resource, texts: Iterator[bytes]) -> None:
        """Objects come as events, are listed again, and go."""
        number = 0
        for number, text in enumerate(texts, 1):
            self.api.add(resource, ("tenant", f"bomb-{number}"), text)
            await asyncio.sleep(_BETWEEN_SECONDS)
        await self.listed(resource)
        for each in range(1, number + 1):
            self.api.remove(resource, ("tenant", f"bomb-{each}"))
        await self.listed(resource)

    async def listed(self, resource: Resource) -> None:
        """All objects of a kind are listed again, as after a restart."""
        await self.api.followed(resource, self.api.expire(resource), _ANSWER_SECONDS)


Bomb = Callable[[Scene], Awaitable[None]]


async def _long_annotations(scene: Scene) -> None:
    """Claims with an annotation of 255 KB each: what any tenant may make."""
    metadata = ({"annotations": {"example.com/a": f"{each} {_NOTES}"}} for each in range(scene.times(2000)))
    await scene.objects(
        CLAIMS, (_object(CLAIMS, f"bomb-{n}", metadata=each, spec=_SPEC) for n, each in enumerate(metadata, 1))
    )


async def _long_templates(scene: Scene) -> None:
    """Claim templates whose claims would have long annotations."""
    spec = {"metadata": {"annotations": {"example.com/a": _NOTES}}, "spec": _SPEC}
    await scene.objects(TEMPLATES, (_object(TEMPLATES, f"bomb-{n + 1}", spec=spec) for n in range(scene.times(1000))))


async def _many_labels(scene: Scene) -> None:
    """Pods with claims and 600 KB of labels each."""
    metadata = {"labels": {f"example.com/{each}": "z" * 63 for each in range(7_000)}}
    spec = {"containers": [{"name": "c"}], "resourceClaims": [{"name": "g", "resourceClaimName": "g"}]}
    texts = (_object(PODS, f"bomb-{n + 1}", metadata=metadata, spec=spec) for n in range(scene.times(500)))
    await scene.objects(PODS, texts)


async def _long_parameters(scene: Scene) -> None:
    """Ten changes a second of a claim with 1.5 MB of escaped opaque parameters."""
    config = [{"opaque": {"driver": "x.example.com", "parameters": {"a": "<" * 10_000}}}] * 24
    text = _object(CLAIMS, "parameters", spec={"devices": {**_SPEC["devices"], "config": config}})
    for _ in range(scene.times(100)):
        scene.api.add(CLAIMS, ("tenant", "parameters"), text)
        await asyncio.sleep(0.1)
    scene.api.remove(CLAIMS, ("tenant", "parameters"))
    await scene.listed(CLAIMS)


async def _deep_objects(scene: Scene) -> None:
    """Claims whose parameters are nested 9,000 levels deep, with a megabyte of small values in the middle."""
    core = b",".join([b'{"a":1}'] * 60_000)
    parameters = b'{"a":' * 9_000 + b"[%b]" % core + b"}" * 9_000
    spec = {"devices": {**_SPEC["devices"], "config": [{"opaque": {"driver": "x", "parameters": "deep"}}]}}
    text = _object(CLAIMS, "deep", spec=spec).replace(b'"deep"}', parameters + b"}", 1)
    for _ in range(scene.times(20)):
        scene.api.add(CLAIMS, ("tenant", "deep"), text)
        await asyncio.sleep(0.2)
    scene.api.remove(CLAIMS, ("tenant", "deep"))
    await scene.listed(CLAIMS)


async def _dense_bodies(scene: Scene) -> None:
    """Long bodies of small objects, many at once."""
    body = b'{"NodeNames":[' + b",".join([b'{"abcdefghijk":1}'] * 2_000_000) + b"]}"
    await scene.send_all(_post("/filter", body), scene.times(16))
    body = b"[" + b",".join([b'{"a":1}'] * 1_000_000) + b"]"
    await scene.send_all(_post("/explain", body), scene.times(16))


async def _many_bodies(scene: Scene) -> None:
    """Bodies just below the length from which they count, on all connections."""
    body = b'{"Pod":[' + b",".join([b'{"a":1}'] * 32_000) + b"]}"
    for path in ("/filter", "/explain", "/autoscaler/filter"):
        await scene.send_all(_post(path, body), scene.times(200))


async def _wide_text(scene: Scene) -> None:
    """A text of one byte a character, which one emoji makes four times as long in memory."""
    body = '{"Pod":{"metadata":{"name":"😀'.encode() + b"a" * 20_000_000 + b'"}},"NodeNames":[]}'
    await scene.send_all(_post("/filter", body), scene.times(8))


async def _empty_options(scene: Scene) -> None:
    """Messages of gRPC with millions of empty options: those that are too long, and the longest that are read."""
    for size in (60_000_000, 12_000_000, 9_000_000):
        async with asyncio.TaskGroup() as calling:
            for _ in range(scene.times(8)):
                calling.create_task(_expand(scene, b"\x0a\x00" * (size // 2)))


async def _dense_pods(scene: Scene) -> None:
    """Messages of gRPC with pods of empty containers."""
    pod = b"\x12" + _varint(60_000) + b"\x12\x00" * 30_000
    option = b"\x0a\x01a" + (b"\x2a" + _varint(len(pod)) + pod) * 150
    message = b"\x0a" + _varint(len(option)) + option
    async with asyncio.TaskGroup() as calling:
        for _ in range(scene.times(8)):
            calling.create_task(_expand(scene, message))


async def _expand(scene: Scene, message: bytes) -> None:
    with contextlib.suppress(grpc.RpcError):
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{scene.grpc_port}", options=[("grpc.max_send_message_length", -1)]
        ) as channel:
            await channel.unary_unary(f"/{SERVICE}/{METHOD}")(message, timeout=_ANSWER_SECONDS)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


async def _controllers(scene: Scene) -> None:
    """Filter for pods whose controller answers 4 MB of brackets, of empty objects, or without an end."""
    for _ in range(scene.times(20)):
        asking = [_post("/filter", orjson.dumps(each)) for each in _NEGOTIATED]
        async with asyncio.TaskGroup() as sending:
            for request in asking:
                sending.create_task(scene.send(request))


async def _unread_replies(scene: Scene) -> None:
    """Tables of all devices that nobody reads."""
    request = b"GET /devices HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\n\r\n"
    writers = []
    for _ in range(scene.times(64)):
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", scene.service.port, limit=1)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(request)
            writers.append(writer)
    await asyncio.sleep(5)
    for writer in writers:
        writer.transport.abort()


async def _sessions(scene: Scene) -> None:
    """Sessions of autoscalers, and explanations, what-if and streams beside them."""
    await scene.send_all(_post("/autoscaler/start", b""), scene.times(200))
    await scene.send_all(b"GET /console/fleet HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", scene.times(64))
    await scene.send_all(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", scene.times(64))


BOMBS: Final[Mapping[str, Bomb]] = {
    "claims with long annotations": _long_annotations,
    "templates with long annotations": _long_templates,
    "pods with many labels": _many_labels,
    "long opaque parameters": _long_parameters,
    "deep opaque parameters": _deep_objects,
    "bodies of small objects": _dense_bodies,
    "many bodies that are not counted": _many_bodies,
    "bodies of wide text": _wide_text,
    "gRPC: empty options": _empty_options,
    "gRPC: pods of empty containers": _dense_pods,
    "controllers' answers": _controllers,
    "replies that nobody reads": _unread_replies,
    "sessions and pages": _sessions,
}

_NEGOTIATED: Final = [
    {"Pod": waiting_pod(f"negotiated-{number}", f"negotiated-{number}"), "NodeNames": [synthetic.node_name(number)]}
    for number in range(4)
]


def _negotiated() -> Iterator[RawObject]:
    """Claims of a class whose controller answers with bombs."""
    metadata = {"annotations": {"dra-extender.dev/controller": _CONTROLLER}, "uid": "uid-bomb", "resourceVersion": "1"}
    yield api_object("DeviceClass", "bomb", metadata=metadata, spec={"selectors": of_driver()})
    for number in range(len(_NEGOTIATED)):
        named = {"uid": f"uid-negotiated-{number}", "resourceVersion": "1"}
        spec = claim_spec([exactly("g", "bomb")])
        yield api_object("ResourceClaim", f"negotiated-{number}", namespace="default", metadata=named, spec=spec)


# --- the run -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one bomb, or of a time without one; bytes and seconds.

    Attributes:
        before, peak, after: bytes in memory: before, the most, and some time later.
        calls: of the ordinary scheduler.
        killed: processes that the kernel has ended.
    """

    name: str
    before: int
    peak: int
    after: int
    seconds: float
    calls: Sequence[Waited]
    killed: int

    @property
    def p99(self) -> float:
        """Seconds of the ordinary scheduler's calls."""
        return percentile([each.seconds for each in self.calls], 99) if self.calls else 0.0

    @property
    def stall(self) -> float:
        """The most seconds that a call waited longer than a call to a peer that does nothing."""
        return max((each.seconds - each.machine for each in self.calls), default=0.0)

    @property
    def worked(self) -> float:
        """The p99 of the processor time that the service took during a call, in seconds."""
        return percentile([each.worked for each in self.calls], 99) if self.calls else 0.0

    @property
    def machine(self) -> float:
        """The p99 of calls to a peer that does nothing, in seconds."""
        return percentile([each.machine for each in self.calls], 99) if self.calls else 0.0

    @property
    def faults(self) -> Sequence[str]:
        """Wrong answers of the ordinary scheduler."""
        return [each.fault for each in self.calls if each.fault]


@dataclass(slots=True)
class Run:
    """A run with all its figures."""

    scene: Scene
    others: Others
    cgroup: MemoryCgroup | None
    found: list[Figures] = field(default_factory=list)

    async def measure(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do something, and tell what it has cost."""
        service = self.scene.service
        before, killed, began, first = service.measure(), self._killed(), time.monotonic(), len(self.others.calls)
        service.reset_peak()
        try:
            async with asyncio.timeout(300):
                await work()
        except TimeoutError:
            print(f"{name}: not done within 300 s", file=sys.stderr)
        seconds = time.monotonic() - began
        calls = self.others.calls[first:]
        peak = service.peak_now()
        after = await self._settled(before)
        self.found.append(Figures(name, before, peak, after, seconds, calls, self._killed() - killed))
        print(row(self.found[-1]), flush=True)
        if not service.alive:
            await service.restart()

    async def _settled(self, before: int) -> int:
        """Bytes in memory once they are back, or after a time."""
        now = self.scene.service.measure()
        for _ in range(_SETTLE_LOOKS):
            if now <= before * _SETTLED:
                break
            await asyncio.sleep(_SETTLE_SECONDS / _SETTLE_LOOKS)
            now = self.scene.service.measure()
        return now

    def _killed(self) -> int:
        return self.cgroup.killed if self.cgroup is not None else 0


def row(each: Figures) -> str:
    """A line of the table."""
    memory = (f"{size / MEGABYTE:>7.0f}" for size in (each.before, each.peak, each.after))
    times = (f"{seconds * 1e3:>7.1f}" for seconds in (each.p99, each.worked, each.machine, each.stall))
    ratio, end = each.p99 / max(each.machine, 1e-3), f"{each.killed:>6} {len(each.faults):>6} {each.seconds:>6.0f} s"
    return f"{each.name:<34} {' '.join(memory)} {' '.join(times)} {ratio:>6.1f} {len(each.calls):>6} {end}"


HEAD: Final = (
    f"{'':<34} {'before':>7} {'peak':>7} {'after':>7} {'p99':>7} {'work':>7} {'peer':>7} {'stall':>7} {'ratio':>6} "
    f"{'calls':>6} {'killed':>6} {'wrong':>6}"
)


async def run(
    sizes: Sizes,
    scale: float,
    cgroup: MemoryCgroup | None,
    names: Sequence[str],
    enter: Sequence[str],
    *,
    together: bool = False,
) -> Sequence[Figures]:
    """All bombs, one after the other and then all at once; ``together``: at once alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with _scene(folder, sizes, scale, enter) as scene:
            others = Others()
            async with others.calling(folder, scene.service, _requests(sizes), _RATE):
                await asyncio.sleep(3)  # imports, first connections and the first search are not to count
                found = Run(scene, others, cgroup)
                print(HEAD, flush=True)
                await found.measure("no bomb", partial(asyncio.sleep, _CALM_SECONDS))
                for each in () if together else names:
                    await found.measure(each, partial(BOMBS[each], scene))
                if len(names) > 1:
                    await found.measure("all at once", partial(_all_at_once, scene, names))
                await found.measure("no bomb", partial(asyncio.sleep, _CALM_SECONDS))
            for signature, text in scene.service.faults():
                print(f"FAULT: {signature}\n{text[-2000:]}", file=sys.stderr)
    return found.found


async def _all_at_once(scene: Scene, names: Sequence[str]) -> None:
    async with asyncio.TaskGroup() as going:
        for each in names:
            going.create_task(BOMBS[each](scene))  # type: ignore[arg-type]  # each is a coroutine


@contextlib.asynccontextmanager
async def _scene(folder: Path, sizes: Sizes, scale: float, enter: Sequence[str]) -> AsyncIterator[Scene]:
    api = BombedApiServer(sizes=sizes)
    for obj in (*map(_ordinary, range(_ORDINARY)), *_negotiated()):
        resource = CLAIMS if obj["kind"] == CLAIMS.kind else CLASSES
        api.load(resource, (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]), orjson.dumps(obj))
    bombs = [b"[" * 4_000_000, b"[" + b"{}," * 1_300_000 + b"{}]", b'{"claims":[' + b'{"a":1},' * 500_000 + b"{}]}"]
    async with api.listening(), serving(*[answer(200, each) for each in bombs * 40]) as controller:
        port = free_port()
        settings = {
            "controllers": [{"name": _CONTROLLER, "url": controller.url}],
            "grpc": {"host": "127.0.0.1", "port": port},
            "log": {"format": "json"},
        }
        file = folder / "settings.yaml"
        file.write_text(yaml.safe_dump(settings))
        service = RunningService(
            folder, api.port, enter=enter, arguments=("--config", str(file)), start_seconds=_START_SECONDS
        )
        try:
            await service.start()
            yield Scene(service, api, port, scale)
        finally:
            await service.stop()


def bounds(found: Sequence[Figures], *, short: bool) -> Iterator[Bound]:
    """What must hold."""
    calm = max(found[0].p99, 0.001)
    for each in found:
        grown = each.after / max(1, each.before)
        yield Bound(f"{each.name}: processes ended by the kernel: {each.killed}", not each.killed)
        yield Bound(f"{each.name}: wrong answers to others: {len(each.faults)} {each.faults[:1]}", not each.faults)
        yield Bound(f"{each.name}: memory after, as a ratio to before: {grown:.2f} (limit {GROWTH:g})", grown <= GROWTH)
        if short:
            told = f"p99 {each.p99 / calm:.1f} times that without bombs (limit {P99_RATIO:g})"
            yield Bound(f"{each.name}: {told}", each.p99 < P99_RATIO * calm)
        else:
            told = f"p99 {each.p99 * 1e3:.0f} ms (limit {P99_SECONDS * 1e3:.0f})"
            yield Bound(f"{each.name}: {told}", each.p99 < P99_SECONDS)
            told = f"longest stall {each.stall * 1e3:.0f} ms (limit {STALL_SECONDS * 1e3:.0f})"
            yield Bound(f"{each.name}: {told}", each.stall < STALL_SECONDS)


def main() -> int:
    """Run, report, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a tenth of the cluster and of the bombs")
    parser.add_argument("--scale", type=float, help="of what is sent; 1 in the long form, 0.1 in the short one")
    parser.add_argument("--together", action="store_true", help="all at once, and none alone")
    parser.add_argument("--limit", type=int, default=LIMIT // _MIB, metavar="MIB", help="of memory")
    parser.add_argument("--only", choices=BOMBS, action="append", help="these bombs alone")
    args = parser.parse_args()
    sizes, scale = (_SHORT, 0.1) if args.short else (_FULL, 1.0)
    scale, limit = args.scale or scale, args.limit * _MIB
    names = args.only or list(BOMBS)
    with contextlib.ExitStack() as stack:
        cgroup: MemoryCgroup | None = None
        enter: Sequence[str] = ("sh", "-c", f'ulimit -v {4 * limit // 1024} && exec "$@"', "sh")
        try:
            cgroup = stack.enter_context(memory_cgroup(limit))
        except NoCgroupError as error:
            print(f"no cgroup ({error}): the address space has a limit of {4 * args.limit} MiB instead, by ulimit -v")
        else:
            enter = cgroup.enter
            print(f"cgroup of version {cgroup.version} with {args.limit} MiB; {machine()}", flush=True)
        found = uvloop.run(run(sizes, scale, cgroup, names, enter, together=args.together))
        print(machine())
    broken = False
    for bound in bounds(found, short=args.short):
        if not bound.holds:
            print(f"BROKEN {bound.told}")
            broken = True
    print("all bounds hold" if not broken else "some bounds are broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
