"""Checks the settings of all listeners together, after all sources are read."""

from collections.abc import Iterator
from ipaddress import ip_address
from itertools import combinations
from typing import TypeAlias

from extender.config.settings import (
    ApiSettings,
    GrpcSettings,
    OperationsSettings,
    ServerSettings,
    Settings,
    TlsSettings,
)

_Listener: TypeAlias = ServerSettings | OperationsSettings | ApiSettings | GrpcSettings

_EVERYWHERE = frozenset({"0.0.0.0", "::"})


def problems_of_listeners(settings: Settings) -> Iterator[str]:
    """Equal ports at addresses that overlap, and certificates that are not complete; each names its keys."""
    yield from _clashes(settings)
    yield from _incomplete("server", settings.server)
    yield from _incomplete("api", settings.api)
    yield from _lacking_for_peers(settings)
    yield from _incomplete("grpc", settings.grpc)
    yield from _open_to_everybody(settings.grpc)
    if settings.api.port and not settings.api.certificate:
        yield "api.certificate: a port for callers off the node has TLS; give the files of a certificate and its key"


def _open_to_everybody(grpc: GrpcSettings) -> Iterator[str]:
    """Whoever reaches the port may make the service work for it. On loopback, these are the pod's own containers."""
    if grpc.port and not (grpc.client_ca or grpc.anonymous or _is_loopback(grpc.host)):
        yield (
            "grpc.clientCa: a port off the loopback asks clients for certificates; give the file of their authorities, "
            "or set grpc.anonymous if a network policy lets only Cluster Autoscaler reach the port"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _incomplete(name: str, tls: TlsSettings) -> Iterator[str]:
    if tls.certificate and not tls.key:
        yield f"{name}.key: {name}.certificate needs the file of its private key"
    elif tls.key and not tls.certificate:
        yield f"{name}.certificate: {name}.key needs the file of its certificate"
    elif tls.client_ca and not tls.certificate:
        yield f"{name}.certificate: {name}.clientCa asks clients for certificates, which needs TLS"


def _lacking_for_peers(settings: Settings) -> Iterator[str]:
    peers = settings.peers
    if peers.server_name:
        needed = {"peers.pod": peers.pod, "peers.ca": peers.ca, "api.port": settings.api.port}
        for key, value in needed.items():
            if not value:
                yield f"peers.serverName: to pass calls on to other replicas, {key} is needed as well"


def _clashes(settings: Settings) -> Iterator[str]:
    listeners: dict[str, _Listener] = {
        "server": settings.server,
        "operations": settings.operations,
        "api": settings.api,
        "grpc": settings.grpc,
    }
    for (name, one), (other_name, other) in combinations(listeners.items(), 2):
        if one.port and one.port == other.port and _overlap(one, other):
            hosts = " and ".join(sorted({one.host, other.host}))
            yield f"{other_name}.port: {other.port} is {name}.port as well ({hosts}): {_ADVICE[other_name]}"


_ADVICE = {
    "operations": "health and metrics need a port of their own, or 0 to be on server.port alone",
    "api": "callers off the node need a port of their own, or 0 for none",
    "grpc": "gRPC needs a port of its own, or 0 for none",
}


def _overlap(one: _Listener, other: _Listener) -> bool:
    hosts = {one.host, other.host}
    is_one_family = len({":" in host for host in hosts}) == 1
    return len(hosts) == 1 or (is_one_family and bool(hosts & _EVERYWHERE))
