"""What the conditions of a pod tell: whether kubelet has started it, and whether its claims were released."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from allocator import Fields

RELEASED: Final = "dra-extender/ClaimsReleased"
"""Condition of a pod whose claims were released: its bind failed, or their devices keep it off every node."""

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
