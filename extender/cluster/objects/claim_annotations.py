"""The annotations of a claim that are read; some say when it is allocated: with its first pod, or as soon as possible.

Source: KEP-3063, "Allocation modes".
"""

import re
from collections.abc import Mapping
from typing import Final

from allocator import Claim
from allocator.model.json import PARAMETERS_REF
from allocator.model.optional import OPTIONAL_REQUESTS
from allocator.tools import did_you_mean, nearest, shown

POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation of claims that were made from a template."""

SPECIAL: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of special claims; its value is "true"."""

CONFIRMED: Final = "dra-extender/confirmed"
"""Annotation of a claim: the pod of its last confirmed reservation, and that pod's latest fence at that time."""

TAKING: Final = "dra-extender/taking"
"""Annotation of a claim that somebody is about to take from a PodGroup: the version that the mark was made from."""

MARK: Final = "dra-extender.dev/negotiation"
"""Annotation of a claim: controller, number of the attempt, and state."""

MARK_FINALIZER: Final = "dra-extender.dev/controller"
"""Finalizer of a marked claim."""

DEALLOCATION_REQUESTED: Final = "dra-extender.dev/deallocation-requested"
"""Annotation of a claim: its controller is to deallocate it, and removes the annotation then. The proposal has a field
``status.deallocationRequested``, which claims of today do not have."""

ALLOCATION_MODE: Final = "dra-extender.dev/allocation-mode"
"""Annotation of a claim: `IMMEDIATE` or `DELAYED`."""

PRIORITY: Final = "dra-extender.dev/priority"
"""Annotation of a claim that is allocated immediately: a whole number; claims with larger numbers go first."""

READ: Final = frozenset(
    {
        ALLOCATION_MODE,
        CONFIRMED,
        DEALLOCATION_REQUESTED,
        MARK,
        OPTIONAL_REQUESTS,
        PARAMETERS_REF,
        POD_CLAIM_NAME,
        PRIORITY,
        SPECIAL,
        TAKING,
    }
)
"""All annotations of a claim that are read."""

IMMEDIATE: Final = "Immediate"
DELAYED: Final = "WaitForFirstConsumer"

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_MOST: Final = 2**31 - 1


def is_immediate(claim: Claim) -> bool:
    """Whether a claim is to be allocated before a pod needs it."""
    return claim.annotations.get(ALLOCATION_MODE) == IMMEDIATE


def priority_of(claim: Claim) -> int:
    """The priority of a claim among those that are allocated immediately."""
    return _number(claim.annotations.get(PRIORITY, "0")) or 0


def mode_problem(annotations: Mapping[str, str]) -> str:
    """What is wrong with the annotations: such a claim is not allocated at all. Empty if they are right."""
    mode, priority = annotations.get(ALLOCATION_MODE), annotations.get(PRIORITY)
    if mode is not None and mode not in {IMMEDIATE, DELAYED}:
        meant = did_you_mean(nearest(mode, (IMMEDIATE, DELAYED))) or f"; there are {IMMEDIATE} and {DELAYED}"
        return f"annotation {ALLOCATION_MODE}: unknown mode {shown(mode)}{meant}"
    if priority is None:
        return ""
    if _number(priority) is None:
        return f"annotation {PRIORITY}: {shown(priority)} is not a whole number of 32 bits"
    if mode != IMMEDIATE:
        return f"annotation {PRIORITY}: needs annotation {ALLOCATION_MODE}: {IMMEDIATE}"
    return ""


def _number(text: str) -> int | None:
    found = int(text) if _NUMBER.fullmatch(text) else None
    return found if found is not None and -_MOST - 1 <= found <= _MOST else None
