"""Plugins at unix sockets: gRPC services, their messages, and how a plugin says who it is.

A socket in a folder that somebody watches is asked which plugin is there, and told whether it was accepted. The kubelet
does so with DRA drivers, and we do so with CCI drivers. Messages are declared by the numbers of their fields.

Sources: ``k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto`` and ``k8s.io/kubelet/pkg/apis/dra/v1/api.proto`` of
Kubernetes 1.37, which are those of 1.34 and later; the text of KEP-3675.
"""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import DecodeError

from extender.tools.protobuf import Declarations, Messages
from extender.tools.user_error import UserError

_ERROR: Final = "error string"

MESSAGES: Final[Declarations] = {
    # --- pluginregistration ---------------------------------------------------------------------------------
    "InfoRequest": {},
    "PluginInfo": {1: "type string", 2: "name string", 3: "endpoint string", 4: "supported_versions [string]"},
    "RegistrationStatus": {1: "plugin_registered bool", 2: _ERROR},
    "RegistrationStatusResponse": {},
    # --- k8s.io.kubelet.pkg.apis.dra.v1 ---------------------------------------------------------------------
    "NodePrepareResourcesRequest": {1: "claims [Claim]"},
    "NodePrepareResourcesResponse": {1: "claims {NodePrepareResourceResponse}"},
    "NodePrepareResourceResponse": {1: "devices [Device]", 2: _ERROR},
    "NodeUnprepareResourcesRequest": {1: "claims [Claim]"},
    "NodeUnprepareResourcesResponse": {1: "claims {NodeUnprepareResourceResponse}"},
    "NodeUnprepareResourceResponse": {1: _ERROR},
    "Claim": {1: "namespace string", 2: "uid string", 3: "name string"},
    "Device": {
        1: "request_names [string]",
        2: "pool_name string",
        3: "device_name string",
        4: "cdi_device_ids [string]",
        5: "share_id string",
    },
    # --- cci.v1alpha1 ---------------------------------------------------------------------------------------
    "AdmitRequest": {
        1: "namespace string",
        2: "claim_uid string",
        3: "claim_name string",
        4: "availableCpus string",
        5: "pod string",
        6: "container string",
        7: "resource_handle string",
    },
    "ResourceSet": {1: "cpuset string", 2: "exclusive bool"},
    "AdmitResponse": {1: "rSet ResourceSet", 2: "err string"},
    "AddResourceRequest": {1: "cgroup string", 2: "pod string", 3: "container string", 4: "container_id string"},
    "AddResourceResponse": {1: "err string"},
    "RemoveResourceRequest": {
        1: "namespace string",
        2: "claim_uid string",
        3: "claim_name string",
        4: "container_id string",
    },
    "RemoveResourceResponse": {1: "err string"},
}

_declared: Final = Messages(MESSAGES)
new_message, read_message = _declared.new, _declared.read


logger = structlog.get_logger()

REGISTRATION: Final = "pluginregistration.Registration"

_STOP_SECONDS: Final = 5.0
"""For running calls, when the plugin ends."""

_LONGEST_PATH: Final = 107
"""Bytes of the path of a socket, on Linux."""

_Answer = Callable[[Any], Awaitable[Any]]
Methods = Mapping[str, tuple[str, _Answer]]
"""The methods of a service by name: the message that each takes, and what answers."""


class SocketError(UserError):
    """A plugin cannot listen at a socket, and why."""


@asynccontextmanager
async def listening(path: Path, services: Mapping[str, Methods]) -> AsyncIterator[None]:
    """Within, some services are served at a socket. Raises SocketError: they cannot be."""
    _check(path)
    server = grpc.aio.server()
    for service, methods in services.items():
        handlers = {name: grpc.unary_unary_rpc_method_handler(_call(*each)) for name, each in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise SocketError(f"{path}: cannot listen there: {error}") from error
    await server.start()
    try:
        yield
    finally:
        await server.stop(_STOP_SECONDS)


def _check(path: Path) -> None:
    """Make the folder of a socket, and see that nobody uses the socket: a killed process leaves one."""
    if len(bytes(path)) > _LONGEST_PATH:
        raise SocketError(f"{path}: the path of a socket has at most {_LONGEST_PATH} bytes: choose a shorter folder")
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise SocketError(f"{path}: another process listens there: a driver of this name runs already")
    except OSError as error:
        raise SocketError(f"{path}: {error.strerror or error}") from error


def _call(name: str, answer: _Answer) -> Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]]:
    async def respond(data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        try:
            return bytes((await answer(read_message(name, data))).SerializeToString())
        except DecodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"is not a {name} in protocol buffers: {error}")
            raise

    return respond


@dataclass(frozen=True, slots=True)
class Registration:
    """The registration of a plugin: what it is asked first.

    Attributes:
        kind: the type of the plugin.
        name: of the driver.
        versions: of the services that it speaks.
        endpoint: the socket of its services; empty: the one that is asked.
        registered: called each time that it was accepted.
    """

    kind: str
    name: str
    versions: tuple[str, ...]
    endpoint: str
    registered: Callable[[], None]

    @property
    def methods(self) -> Methods:
        """The methods of the service `REGISTRATION`."""
        return {
            "GetInfo": ("InfoRequest", self._info),
            "NotifyRegistrationStatus": ("RegistrationStatus", self._notified),
        }

    async def _info(self, _: Any) -> Any:  # noqa: ANN401  # messages
        return new_message(
            "PluginInfo", type=self.kind, name=self.name, endpoint=self.endpoint, supported_versions=self.versions
        )

    async def _notified(self, status: Any) -> Any:  # noqa: ANN401  # messages
        if status.plugin_registered:
            logger.info("driver registered", driver=self.name)
            self.registered()
        else:
            logger.warning("driver not registered", driver=self.name, problem=status.error)
        return new_message("RegistrationStatusResponse")
