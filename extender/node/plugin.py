"""A plugin of the kubelet: the two sockets of a driver, and what the kubelet asks there.

The kubelet finds the registration socket in its folder, and asks there which plugin it is, and at which socket claims
are prepared. It asks again when the socket is made again, and after its own restart.

Source: ``k8s.io/dynamic-resource-allocation/kubeletplugin`` of Kubernetes 1.37.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import DecodeError

from extender.kube.api import Api, ObjectKey
from extender.node import messages
from extender.node.claims import read_claim
from extender.node.driver import Driver, PreparedDevice, PrepareError

logger = structlog.get_logger()

REGISTRATION: Final = "pluginregistration.Registration"
SERVICE: Final = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
TYPE: Final = "DRAPlugin"
VERSIONS: Final = ("v1.DRAPlugin",)

_STOP_SECONDS: Final = 5.0
"""For running calls, when the driver ends."""

_LONGEST_PATH: Final = 107
"""Bytes of the path of a socket, on Linux."""

_Answer = Callable[[Any], Awaitable[Any]]


class PluginError(Exception):
    """A driver cannot serve a kubelet here, and why."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """Where a driver listens.

    Attributes:
        registration: in the folder that the kubelet watches.
        plugin: where the kubelet asks for claims to be prepared.
    """

    registration: Path
    plugin: Path

    @classmethod
    def of(cls, driver: str, kubelet: Path) -> "Sockets":
        """The usual ones in a kubelet's root directory."""
        return cls(kubelet / "plugins_registry" / f"{driver}-reg.sock", kubelet / "plugins" / driver / "dra.sock")


@asynccontextmanager
async def serving(driver: Driver, api: Api, sockets: Sockets, registered: Callable[[], None]) -> AsyncIterator[None]:
    """Within the context, the kubelet finds the driver and can ask it.

    Args:
        driver: prepares claims.
        api: where claims are read.
        sockets: their folders are made if they are missing.
        registered: called each time that a kubelet has accepted the driver.

    Raises:
        PluginError: a socket cannot be made, or another process serves the driver.
    """
    plugin, registration = _Plugin(driver, api), _Registration(driver.name, sockets.plugin, registered)
    # The kubelet asks the second socket as soon as it has found the first.
    async with (
        _listening(sockets.plugin, SERVICE, plugin.methods),
        _listening(sockets.registration, REGISTRATION, registration.methods),
    ):
        logger.info("driver serves", driver=driver.name, socket=str(sockets.plugin))
        yield


@asynccontextmanager
async def _listening(path: Path, service: str, methods: Mapping[str, tuple[str, _Answer]]) -> AsyncIterator[None]:
    """A server for one service. ``methods``: by name, the message that it takes, and what answers."""
    _check(path)
    server = grpc.aio.server()
    handlers = {name: grpc.unary_unary_rpc_method_handler(_call(*each)) for name, each in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise PluginError(f"{path}: cannot listen there: {error}") from error
    await server.start()
    try:
        yield
    finally:
        await server.stop(_STOP_SECONDS)


def _check(path: Path) -> None:
    """Make the folder of a socket, and see that nobody uses the socket: a killed process leaves one."""
    if len(bytes(path)) > _LONGEST_PATH:
        raise PluginError(f"{path}: the path of a socket has at most {_LONGEST_PATH} bytes: choose a shorter folder")
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise PluginError(f"{path}: another process listens there: a driver of this name runs already")
    except OSError as error:
        raise PluginError(f"{path}: {error.strerror or error}") from error


def _call(name: str, answer: _Answer) -> Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]]:
    async def respond(data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        try:
            return bytes((await answer(messages.read(name, data))).SerializeToString())
        except DecodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"is not a {name} in protocol buffers: {error}")
            raise

    return respond


@dataclass(frozen=True, slots=True)
class _Registration:
    """What the kubelet asks at the registration socket."""

    driver: str
    endpoint: Path
    registered: Callable[[], None]

    @property
    def methods(self) -> Mapping[str, tuple[str, _Answer]]:
        return {
            "GetInfo": ("InfoRequest", self._info),
            "NotifyRegistrationStatus": ("RegistrationStatus", self._notified),
        }

    async def _info(self, _: Any) -> Any:  # noqa: ANN401  # messages
        return messages.new(
            "PluginInfo", type=TYPE, name=self.driver, endpoint=str(self.endpoint), supported_versions=VERSIONS
        )

    async def _notified(self, status: Any) -> Any:  # noqa: ANN401  # messages
        if status.plugin_registered:
            logger.info("driver registered", driver=self.driver)
            self.registered()
        else:
            logger.warning("driver not registered", driver=self.driver, problem=status.error)
        return messages.new("RegistrationStatusResponse")


@dataclass(frozen=True, slots=True)
class _Plugin:
    """What the kubelet asks about claims. One call of the driver at a time, whatever the kubelet does at once."""

    driver: Driver
    api: Api
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def methods(self) -> Mapping[str, tuple[str, _Answer]]:
        return {
            "NodePrepareResources": ("NodePrepareResourcesRequest", self._prepare),
            "NodeUnprepareResources": ("NodeUnprepareResourcesRequest", self._unprepare),
        }

    async def _prepare(self, request: Any) -> Any:  # noqa: ANN401  # messages
        response = messages.new("NodePrepareResourcesResponse")
        for claim in request.claims:
            key, entry = ObjectKey(claim.namespace, claim.name), response.claims[claim.uid]
            try:
                found = await read_claim(self.api, self.driver.name, key, claim.uid)
                async with self._turn:
                    prepared = await self.driver.prepare(found)
                entry.devices.extend(_device(each) for each in prepared)
                logger.info("claim prepared", driver=self.driver.name, claim=str(key), devices=len(prepared))
            except Exception as error:  # noqa: BLE001  # each claim has an answer of its own
                entry.error = self._told("claim not prepared", key, error)
        return response

    async def _unprepare(self, request: Any) -> Any:  # noqa: ANN401  # messages
        response = messages.new("NodeUnprepareResourcesResponse")
        for claim in request.claims:
            key, entry = ObjectKey(claim.namespace, claim.name), response.claims[claim.uid]
            try:
                async with self._turn:
                    await self.driver.unprepare(claim.uid)
                logger.info("claim unprepared", driver=self.driver.name, claim=str(key))
            except Exception as error:  # noqa: BLE001  # as above
                entry.error = self._told("claim not unprepared", key, error)
        return response

    def _told(self, event: str, key: ObjectKey, error: Exception) -> str:
        """Log why a claim was not served; the text for the kubelet."""
        is_known = isinstance(error, PrepareError)
        logger.warning(event, driver=self.driver.name, claim=str(key), problem=str(error), exc_info=not is_known)
        return str(error) if is_known else f"claim {key}: internal error of driver {self.driver.name}; see its log"


def _device(prepared: PreparedDevice) -> Any:  # noqa: ANN401  # a message
    device = prepared.device
    return messages.new(
        "Device",
        # The kubelet knows requests, not subrequests.
        request_names=[device.request.partition("/")[0]],
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=prepared.cdi_ids,
        share_id=device.share_id,
    )
