"""A plugin of the kubelet: the two sockets of a driver, and the claims that the kubelet asks it to prepare.

The kubelet finds the registration socket in its folder, and asks there which plugin it is, and at which socket claims
are prepared. It asks again when the socket is made again, and after its own restart.

Source: ``k8s.io/dynamic-resource-allocation/kubeletplugin`` of Kubernetes 1.37.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.resources import CLAIMS
from extender.node import sockets
from extender.node.driver import AllocatedClaim, AllocatedDevice, Driver, DriverParameters, PreparedDevice, PrepareError
from extender.node.sockets import REGISTRATION, Methods, Registration, listening

_FROM_CLASS: Final = "FromClass"


async def read_claim(api: Api, driver: str, key: ObjectKey, uid: str) -> AllocatedClaim:
    """A claim that the kubelet names, with what a driver is to prepare.

    Raises:
        PrepareError: the API server does not give it, or the claim is another one of that name, or is not allocated.
    """
    try:
        claim = await api.get(CLAIMS, key)
    except (ApiError, OutcomeUnknownError) as error:
        raise PrepareError(f"claim {key}: {error}") from error
    found = claim["metadata"].get("uid", "")
    if found != uid:
        raise PrepareError(f"claim {key}: metadata.uid is {found}, and the pod's claim was {uid}: it was replaced")
    allocation = (claim.get("status") or {}).get("allocation")
    if not allocation:
        raise PrepareError(f"claim {key}: status.allocation is missing: the claim is not allocated")
    return allocated_claim(claim, driver)


def allocated_claim(claim: RawObject, driver: str) -> AllocatedClaim:
    """An allocated claim, with what a driver is to prepare."""
    metadata, devices = claim["metadata"], claim["status"]["allocation"].get("devices") or {}
    results = tuple(
        AllocatedDevice(
            each["request"], each["pool"], each["device"], each.get("shareID") or "", bool(each.get("adminAccess"))
        )
        for each in devices.get("results") or ()
        if each["driver"] == driver
    )
    ordered = sorted(devices.get("config") or (), key=lambda each: each.get("source") != _FROM_CLASS)
    parameters = tuple(_parameters(ordered, driver))
    return AllocatedClaim(metadata["namespace"], metadata["name"], metadata["uid"], results, parameters)


def _parameters(configs: list[Mapping[str, Any]], driver: str) -> Iterator[DriverParameters]:
    for each in configs:
        opaque = each.get("opaque")
        if opaque and opaque["driver"] == driver:
            yield DriverParameters(tuple(each.get("requests") or ()), opaque["parameters"])


logger = structlog.get_logger()

SERVICE: Final = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
TYPE: Final = "DRAPlugin"
VERSIONS: Final = ("v1.DRAPlugin",)


@dataclass(frozen=True, slots=True)
class Sockets:
    """The sockets where a driver listens.

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
        SocketError: a socket cannot be made, or another process serves the driver.
    """
    plugin = _Plugin(driver, api)
    registration = Registration(TYPE, driver.name, VERSIONS, str(sockets.plugin), registered)
    # The kubelet asks the second socket as soon as it has found the first.
    async with (
        listening(sockets.plugin, {SERVICE: plugin.methods}),
        listening(sockets.registration, {REGISTRATION: registration.methods}),
    ):
        logger.info("driver serves", driver=driver.name, socket=str(sockets.plugin))
        yield


@dataclass(frozen=True, slots=True)
class _Plugin:
    """The service that the kubelet asks about claims. It calls the driver once at a time, whatever the kubelet does."""

    driver: Driver
    api: Api
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def methods(self) -> Methods:
        return {
            "NodePrepareResources": ("NodePrepareResourcesRequest", self._prepare),
            "NodeUnprepareResources": ("NodeUnprepareResourcesRequest", self._unprepare),
        }

    async def _prepare(self, request: Any) -> Any:  # noqa: ANN401  # messages
        response = sockets.new_message("NodePrepareResourcesResponse")
        for claim in request.claims:
            key, entry = ObjectKey(claim.namespace, claim.name), response.claims[claim.uid]
            try:
                found = await read_claim(self.api, self.driver.name, key, claim.uid)
                async with self._turn:
                    prepared = await self.driver.prepare(found)
                entry.devices.extend(_device(each) for each in prepared)
                logger.info("claim prepared", driver=self.driver.name, claim=str(key), devices=len(prepared))
            except Exception as error:  # noqa: BLE001  # each claim has an answer of its own
                entry.error = self._logged_failure("claim not prepared", key, error)
        return response

    async def _unprepare(self, request: Any) -> Any:  # noqa: ANN401  # messages
        response = sockets.new_message("NodeUnprepareResourcesResponse")
        for claim in request.claims:
            key, entry = ObjectKey(claim.namespace, claim.name), response.claims[claim.uid]
            try:
                async with self._turn:
                    await self.driver.unprepare(claim.uid)
                logger.info("claim unprepared", driver=self.driver.name, claim=str(key))
            except Exception as error:  # noqa: BLE001  # as above
                entry.error = self._logged_failure("claim not unprepared", key, error)
        return response

    def _logged_failure(self, event: str, key: ObjectKey, error: Exception) -> str:
        """Log why a claim was not served; the text for the kubelet."""
        is_known = isinstance(error, PrepareError)
        logger.warning(event, driver=self.driver.name, claim=str(key), problem=str(error), exc_info=not is_known)
        return str(error) if is_known else f"claim {key}: internal error of driver {self.driver.name}; see its log"


def _device(prepared: PreparedDevice) -> Any:  # noqa: ANN401  # a message
    device = prepared.device
    return sockets.new_message(
        "Device",
        # The kubelet knows requests, not subrequests.
        request_names=[device.request.partition("/")[0]],
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=prepared.cdi_ids,
        share_id=device.share_id,
    )
