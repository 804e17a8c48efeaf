"""What the conditions of a pod say.

They say whether kubelet has started the pod, whether its claims were released, and where devices are kept for it.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from allocator import DeviceId
from allocator.tools import Fields

RELEASED: Final = "dra-extender/ClaimsReleased"
"""Condition of a pod whose claims were released: its bind failed, or the claims' devices kept it off every node."""

KEPT: Final = "dra-extender/DevicesKept"
"""Condition of a pod for which devices are kept: other pods are evicted for it, or it is in a gang.

The message is a `Keeping` in words (`Keeping.message`).
"""

_KEPT: Final = ": devices are kept for the pod: "
_WITHOUT: Final = "; without "
_EVICTED: Final = "; evicted for it: "

_SANDBOX_READY: Final = "PodReadyToStartContainers"
"""Condition of a pod whose sandbox exists. Before that, kubelet prepares the devices of the pod's claims."""


class Keeping(NamedTuple):
    """What is kept for a pod: other pods are evicted for it, or its gang gets devices together.

    Attributes:
        node: the node of the devices; empty if nothing is kept.
        devices: the devices that the pod gets there.
        victims: uids of the pods that are evicted for it, and for whose devices it waits; empty once it need not wait.
        without: labels of what is left out, because not all pods of its gang can have it
            (`extender.pods.reduced_claims`).
    """

    node: str = ""
    devices: tuple[DeviceId, ...] = ()
    victims: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The message of a condition `KEPT`."""
        kept = f"node {self.node}{_KEPT}{', '.join(map(str, self.devices))}"
        kept += f"{_WITHOUT}{', '.join(self.without)}" if self.without else ""
        return f"{kept}{_EVICTED}{', '.join(self.victims)}" if self.victims else kept

    @classmethod
    def of(cls, conditions: Iterable["PodCondition"]) -> "Keeping":
        """What the conditions of a pod say."""
        for each in conditions:
            if each.type == KEPT and each.status == "True" and _KEPT in each.message:
                node, _, rest = each.message.partition(_KEPT)
                rest, _, victims = rest.partition(_EVICTED)
                devices, _, without = rest.partition(_WITHOUT)
                found = tuple(map(_device, _listed(devices)))
                return cls(node.removeprefix("node "), found, _listed(victims), _listed(without))
        return NOTHING_KEPT


NOTHING_KEPT: Final = Keeping()


class PodCondition(NamedTuple):
    """An entry of ``status.conditions``."""

    type: str
    status: str
    message: str


def read_conditions(status: Fields) -> tuple[PodCondition, ...]:
    """The conditions in a pod's status."""
    found = status.children("conditions")
    return tuple(PodCondition(each.text("type"), each.text("status"), each.text("message")) for each in found)


def fence_of(conditions: Iterable[PodCondition]) -> str:
    """The revision of the pod before its latest fence: different for each fence of a pod. Empty without a fence."""
    messages = [each.message for each in conditions if each.type == RELEASED]
    return messages[-1].rpartition(" ")[2] if messages else ""


def has_started(phase: str, conditions: Iterable[PodCondition]) -> bool:
    """Whether kubelet has started the pod. While init containers run, the phase is still Pending."""
    return phase == "Running" or any(each.type == _SANDBOX_READY and each.status == "True" for each in conditions)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split(", ")) if text else ()


def _device(text: str) -> DeviceId:
    """The device of a text that `DeviceId` has made: only the name of a pool may have slashes."""
    driver, _, rest = text.partition("/")
    pool, _, device = rest.rpartition("/")
    return DeviceId(driver, pool, device)
