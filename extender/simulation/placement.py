"""Where a pod goes, as a value."""

from dataclasses import dataclass

from allocator import DeviceResult, LeftOut
from extender.explain.explanation import share_in_words


@dataclass(frozen=True, slots=True)
class PlacedDevice:
    """A device of a pod.

    Attributes:
        claim: name of the pod's claim.
        result: request, device, and what the request takes of a shared device.
        asked: the words by which people know the request: its name, or the extended resource and the container.
    """

    claim: str
    result: DeviceResult
    asked: str

    def __str__(self) -> str:
        return f"{self.result.device}{share_in_words(self.result.consumed_capacity)}"

    def as_json(self) -> dict[str, object]:
        """The device as in an allocation result, with the claim."""
        driver, pool, device = self.result.device
        found: dict[str, object] = {
            "claim": self.claim,
            "request": self.result.request,
            "driver": driver,
            "pool": pool,
            "device": device,
        }
        if self.result.consumed_capacity is not None:
            found["consumedCapacity"] = {name: str(amount) for name, amount in self.result.consumed_capacity.items()}
        return found


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod's node and devices, or the reason why it has none.

    Attributes:
        pod: namespace and name, as ``namespace/name``.
        node: name of the node; empty if the pod stays pending.
        devices: in the order of the pod's claims and requests.
        left_out: the optional requests that are not served; the reason is empty.
        reason: why the pod stays pending; equal reasons of nodes are counted. Empty if it has a node.
        lacks_devices: it stays pending only because no node has free devices for it.
    """

    pod: str
    node: str = ""
    devices: tuple[PlacedDevice, ...] = ()
    reason: str = ""
    left_out: tuple[LeftOut, ...] = ()
    lacks_devices: bool = False

    def as_json(self) -> dict[str, object]:
        """A placement for programs."""
        return {
            "pod": self.pod,
            "node": self.node or None,
            "devices": [device.as_json() for device in self.devices],
            "leftOut": [{"claim": each.claim, "request": each.request} for each in self.left_out],
            "reason": self.reason or None,
        }
