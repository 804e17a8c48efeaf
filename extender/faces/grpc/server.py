"""The gRPC server: one service, the expander that Cluster Autoscaler calls (``--expander=grpc``).

The autoscaler sends its options: groups, the number of nodes that it would add to each, and the pending pods that it
would add them for. It keeps the options whose groups are in the answer. If several are left, its next expander
chooses. After an error it keeps all options.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
import structlog

from allocator import InvalidObjectError
from extender.autoscaler.autoscaler import Autoscaler, InSession
from extender.autoscaler.scale_up.estimate import Expansion, expand
from extender.autoscaler.scale_up.plan import NodeGroup, NodeRoom, PendingPod
from extender.autoscaler.simulated_cluster import World
from extender.autoscaler.verbs import as_pending, as_room
from extender.cluster.objects.pods import parse_pod
from extender.config.settings import GrpcSettings, Settings
from extender.faces.grpc import messages
from extender.faces.grpc.messages import SHORT_BYTES, as_json, decoding
from extender.faces.grpc.opening import GrpcError, Start
from extender.framework.metrics import Metrics
from extender.framework.wire import WireError
from extender.kube.certificates import CertificateError, CertificateFiles, Certificates, Pem
from extender.tools.faults import RefusedError
from extender.tools.intake import Budget, Room, Source, Steps, at_once
from extender.tools.offload import frameless, in_thread, waited_for


def certificates_of(settings: GrpcSettings) -> Certificates | None:
    """The certificates of the server; None: no TLS.

    Raises:
        GrpcError: a file cannot be used.
    """
    if not settings.tls:
        return None
    client_ca = Path(settings.client_ca) if settings.client_ca else None
    files = CertificateFiles(Path(settings.certificate), Path(settings.key), client_ca, required=client_ca is not None)
    try:
        return Certificates(files)
    except CertificateError as error:
        raise GrpcError(f"grpc: {error}") from error


def server_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Credentials that use the newest certificates for each new connection."""
    return grpc.dynamic_ssl_server_credentials(
        _configuration(certificates.pem),
        Newest(certificates),
        require_client_authentication=certificates.files.required,
    )


class Newest:
    """gRPC calls it for each connection."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates
        self._used = certificates.pem

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        """The configuration if the certificates have changed, else None: the former one stays in use."""
        found = self._certificates.pem
        if found is self._used:
            return None
        self._used = found
        return _configuration(found)


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.client_ca or None)


logger = structlog.get_logger()

_in_thread = frameless(waited_for(in_thread), WireError, InvalidObjectError)

VERB: Final = "best_options"
"""What metrics call it."""

_CALLS: Final = 4
"""At the same time. An autoscaler makes one after the other."""

_GROWTH: Final = 10
"""A message, its pods and what is known of them take up to so many times the bytes of the message."""


@asynccontextmanager
async def listening(settings: Settings, budget: Budget) -> AsyncIterator[Start]:
    """Within the context, a server has its port; it answers when it is started.

    Raises:
        GrpcError: a certificate cannot be used, or the address is in use.
    """
    certificates = certificates_of(settings.grpc)
    longest = min(settings.server.body_limit_bytes, budget.share(Source.GRPC) // _GROWTH)
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", longest),
            ("grpc.max_concurrent_streams", _CALLS),  # of a connection; those of all connections are limited below
            ("grpc.so_reuseport", 0),  # otherwise a second process could take a part of the calls
        ],
        maximum_concurrent_rpcs=_CALLS,
    )
    address = _listen(server, settings.grpc, certificates)

    async def start(autoscaler: Autoscaler, metrics: Metrics) -> None:
        metrics.verbs.expect(VERB)
        # A call that is left takes its room until the threads that work on it have ended.
        calls = _BestOptions(
            replace(autoscaler, off_loop=waited_for(autoscaler.off_loop)), metrics, time.perf_counter, budget
        )
        handlers = {METHOD: grpc.unary_unary_rpc_method_handler(calls.answer)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        await server.start()
        logger.info("serving gRPC", address=address, tls=bool(certificates))

    following = asyncio.create_task(certificates.follow()) if certificates else None
    try:
        yield start
    finally:
        if following:
            following.cancel()
        await server.stop(settings.server.stop_seconds)


def _listen(server: grpc.aio.Server, wanted: GrpcSettings, certificates: Certificates | None) -> str:
    """The address that the server has from now on."""
    address = f"[{wanted.host}]:{wanted.port}" if ":" in wanted.host else f"{wanted.host}:{wanted.port}"
    try:
        if certificates:
            server.add_secure_port(address, server_credentials(certificates))
        else:
            server.add_insecure_port(address)
    except RuntimeError as error:
        raise GrpcError(f"grpc.host and grpc.port: cannot listen on {address}") from error
    if not certificates and wanted.anonymous:
        logger.warning("gRPC without TLS", address=address, hint="set grpc.certificate and grpc.key")
    return address


class _BusyError(Exception):
    """The messages of other calls leave no room for this one."""


@dataclass(frozen=True, slots=True)
class _BestOptions:
    """``BestOptions``: the bytes of a request in, those of the response out."""

    autoscaler: Autoscaler
    metrics: Metrics
    clock: Callable[[], float]
    budget: Budget

    async def answer(self, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        began, code, status, reply = self.clock(), "error", None, b""
        try:
            with self.budget.room(Source.GRPC) as room:
                _take_room(room, len(request) * _GROWTH)
                reply = await self._answer(request, began, context.time_remaining())
            code = "ok"
        except Exception as error:  # noqa: BLE001 - the one place where errors of calls become statuses
            status = _status(error)
        finally:
            self.metrics.verbs.answered(VERB, code, self.clock() - began)
        del request  # the server keeps the error of `abort`, and with it this frame, until Python looks for cycles
        if status is not None:
            await context.abort(*status)
        return reply

    async def _answer(self, request: bytes, began: float, seconds: float | None) -> bytes:
        steps = decode_options(request)
        if len(request) <= SHORT_BYTES:
            off_loop = frameless(self.autoscaler.off_loop, WireError, InvalidObjectError)
            args = await off_loop(partial(at_once, steps))
        else:  # not where searches run: in its turn, a slice must not wait for a thread until a search has ended
            args = await self.budget.decoding.in_slices(Source.GRPC.label, steps, _in_thread)
        limit = self.autoscaler.deadline_seconds if seconds is None else seconds
        found = await best_options(self.autoscaler, args, limit - (self.clock() - began))
        logger.info(
            "node group chosen", options=len(args.groups), pods=len(args.pods), left=found.groups, reason=found.reason
        )
        return encode_expansion(found, args)


def _take_room(room: Room, size: int) -> None:
    if not room.grow(size):
        raise _BusyError


def _status(error: Exception) -> tuple[grpc.StatusCode, str]:
    match error:
        case WireError() | InvalidObjectError():
            return grpc.StatusCode.INVALID_ARGUMENT, str(error)
        case _BusyError():
            return grpc.StatusCode.RESOURCE_EXHAUSTED, "other calls leave no memory for this one; try again"
        case RefusedError():
            return grpc.StatusCode.UNAVAILABLE, str(error)
        case TimeoutError():
            return grpc.StatusCode.DEADLINE_EXCEEDED, f"{METHOD} was not done within its deadline"
    logger.error("verb failed", verb=VERB, exc_info=error)
    return grpc.StatusCode.INTERNAL, f"internal error in {METHOD}; the service's log has the details"


SERVICE: Final = "grpcplugin.Expander"
METHOD: Final = "BestOptions"


@dataclass(frozen=True, slots=True)
class ExpansionArgs:
    """Pending pods, each with the groups that may take it, and the groups that may grow."""

    pods: tuple[PendingPod, ...]
    groups: tuple[NodeGroup, ...]


def decode_options(data: bytes) -> Steps[ExpansionArgs]:
    """The options of a ``BestOptionsRequest``, in small steps.

    Raises:
        WireError: the bytes are something else; a group is there twice or has no node; a pod or node is invalid.
    """
    request = yield from decoding("BestOptionsRequest", data, "")
    nodes = {name: ("nodeMap", node) for name, node in request.nodeMap.items()}
    nodes |= {name: ("nodeBytesMap", node) for name, node in request.nodeBytesMap.items()}
    groups: dict[str, NodeGroup] = {}
    pods = _Pods()
    for index, option in enumerate(request.options):
        name, where = option.nodeGroupId, f"options[{index}]"
        if not name:
            raise WireError(f"{where}.nodeGroupId", "missing")
        if name in groups:
            raise WireError(f"{where}.nodeGroupId", f"node group {name} is there twice")
        if name not in nodes:
            raise WireError("nodeBytesMap", f"has no node of node group {name}")
        if option.nodeCount < 0:
            raise WireError(f"{where}.nodeCount", f"must not be negative, not {option.nodeCount}")
        field, node = nodes[name]
        room = yield from _room(node, f"{field}[{name}]")
        groups[name] = NodeGroup(name, room, option.nodeCount)
        for field in ("pod", "podBytes"):
            for number, each in enumerate(getattr(option, field)):
                yield
                yield from pods.add(each, name, f"{where}.{field}[{number}]")
    return ExpansionArgs(tuple(pods.found()), tuple(groups.values()))


async def best_options(autoscaler: Autoscaler, args: ExpansionArgs, seconds: float) -> Expansion:
    """The group that a Cluster Autoscaler had best expand next, within the seconds that it waits.

    Raises:
        RefusedError: the cluster is not known well enough.
        TimeoutError: time was up.
    """
    solver = autoscaler.for_call(seconds)

    def choose(world: World) -> tuple[World, Expansion]:
        return world, expand(world, args.pods, args.groups, solver)

    ask = partial(autoscaler.negotiating.about_groups, pods=args.pods, groups=args.groups)
    return await InSession(autoscaler).within(choose, ask)


def encode_expansion(expansion: Expansion, args: ExpansionArgs) -> bytes:
    """A ``BestOptionsResponse``. The autoscaler reads only the ids of groups."""
    response: Any = messages.new("BestOptionsResponse")
    counts = {group.name: group.limit for group in args.groups}
    for name in expansion.groups:
        count = counts[name] if expansion.nodes is None else expansion.nodes
        response.options.add(nodeGroupId=name, nodeCount=count, debug=expansion.reason)
    return bytes(response.SerializeToString())


class _Pods:
    """The pods of all options. A pod is in several options, and is read once."""

    def __init__(self) -> None:
        self._uids: dict[bytes, str] = {}
        self._pods: dict[str, PendingPod] = {}
        self._groups: dict[str, set[str]] = {}

    def add(self, data: bytes, group: str, where: str) -> Steps[None]:
        """A pod that a group may take."""
        uid = self._uids.get(data)
        if uid is None:
            message = yield from decoding("Pod", data, where)
            metadata = message.metadata
            uid = metadata.uid or f"{metadata.namespace}/{metadata.name}"
            if uid not in self._pods:
                self._pods[uid] = as_pending(as_json(message), where, parse_pod)
                self._groups[uid] = set()
            self._uids[data] = uid
        self._groups[uid].add(group)

    def found(self) -> Iterator[PendingPod]:
        """Each pod with its groups."""
        shared: dict[frozenset[str], frozenset[str]] = {}
        for uid, pod in self._pods.items():
            groups = frozenset(self._groups[uid])
            yield replace(pod, groups=shared.setdefault(groups, groups))


def _room(data: bytes, where: str) -> Steps[NodeRoom]:
    return as_room(as_json((yield from decoding("Node", data, where))), where)
