"""A driver on a node, as values: the claims that are allocated, and what it has prepared for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class PrepareError(Exception):
    """A claim cannot be prepared or unprepared. The kubelet shows the text in an Event of the pod, and tries again."""


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """A device that a claim is allocated.

    Attributes:
        request: name of the request; of a subrequest, with the request's name before it: ``gpu/large``.
        share_id: tells apart the shares of a device with consumable capacity; empty: it is not shared.
        admin: whether the claim has access beside other claims (``adminAccess``).
    """

    request: str
    pool: str
    device: str
    share_id: str = ""
    admin: bool = False

    @property
    def is_exclusive(self) -> bool:
        """Whether no other claim may have the device at the same time."""
        return not self.share_id and not self.admin


@dataclass(frozen=True, slots=True)
class DriverParameters:
    """Opaque parameters for a driver, of a class or a claim.

    Attributes:
        requests: the requests that they are for; empty: all.
    """

    requests: tuple[str, ...]
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A claim, with what one driver is to prepare.

    Attributes:
        devices: those of this driver, in the order of the allocation.
        parameters: those for this driver. Parameters of classes come before those of the claim.
    """

    namespace: str
    name: str
    uid: str
    devices: tuple[AllocatedDevice, ...]
    parameters: tuple[DriverParameters, ...] = ()

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A device that is ready for containers.

    Attributes:
        cdi_ids: the CDI devices that the runtime gives to containers, such as ``gpu.example.com/claim=uid-gpu-0``.
    """

    device: AllocatedDevice
    cdi_ids: tuple[str, ...]


class Driver(Protocol):
    """A driver. Its methods are called one at a time, and again after a restart of the kubelet or of the driver."""

    @property
    def name(self) -> str:
        """The driver's name, as in ResourceSlices."""
        ...

    async def prepare(self, claim: AllocatedClaim) -> Sequence[PreparedDevice]:
        """Make devices ready for containers; a second call for the same claim changes nothing.

        Raises:
            PrepareError: it is not possible now.
        """
        ...

    async def unprepare(self, uid: str) -> None:
        """Undo what was prepared for a claim, which may be deleted already; nothing prepared: nothing to do.

        Raises:
            PrepareError: it is not possible now.
        """
        ...
