"""What the conditions of a pod tell: whether kubelet has started it, whether its claims were released, what is kept."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from allocator import Fields

RELEASED: Final = "dra-extender/ClaimsReleased"
"""Condition of a pod whose claims were released: its bind failed, or their devices keep it off every node."""

KEPT: Final = "dra-extender/DevicesKept"
"""Condition of a pod for which others are evicted. The message has the node where devices are kept for it, and the uids
of the others (`kept_message`)."""

_KEPT_MESSAGE: Final = ": devices are kept for the pod; evicted for it: "

_SANDBOX_READY: Final = "PodReadyToStartContainers"
"""Condition of a pod whose sandbox exists. kubelet prepares the devices of the pod's claims before."""


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
    """The revision that the latest fence was made from, which is different for each fence of a pod; empty for none."""
    messages = [each.message for each in conditions if each.type == RELEASED]
    return messages[-1].rpartition(" ")[2] if messages else ""


def has_started(phase: str, conditions: Iterable[PodCondition]) -> bool:
    """Whether kubelet has started the pod. While init containers run, the phase is still Pending."""
    return phase == "Running" or any(each.type == _SANDBOX_READY and each.status == "True" for each in conditions)


def kept_message(node: str, victims: Iterable[str]) -> str:
    """The message of a condition `KEPT`: the node where devices are kept, and the uids of the pods that are evicted."""
    return f"node {node}{_KEPT_MESSAGE}{', '.join(victims)}"


def kept_of(conditions: Iterable[PodCondition]) -> tuple[str, tuple[str, ...]]:
    """The node where devices are kept for the pod, and the uids of the pods that are evicted for it; empty if none."""
    for each in conditions:
        if each.type == KEPT and each.status == "True":
            node, _, victims = each.message.partition(_KEPT_MESSAGE)
            return node.removeprefix("node "), tuple(victims.split(", ")) if victims else ()
    return "", ()
