"""Claims of the API server as a driver sees them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from extender.kube.api import Api, ObjectKey, RawObject
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.kube.resources import CLAIMS
from extender.node.driver import AllocatedClaim, AllocatedDevice, DriverParameters, PrepareError

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
