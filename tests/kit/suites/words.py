"""Kubernetes' own tests compare reasons word by word: our words, and those of the plugin for the same reason.

The words of ours are in docs/reference/api.md#reasons.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Word:
    """Words for one reason.

    Attributes:
        ours: a regular expression of Go and Python.
        upstream: what stands in its place; ``$1`` is the first group.
    """

    ours: str
    upstream: str


CANNOT_ALLOCATE: Final = "cannot allocate all claims"
ELSEWHERE: Final = "resourceclaim not available on the node"
INVALID_POOLS: Final = "invalid resource pools were encountered"

WORDS: Final = (
    Word(r"^resource pool is not usable for request .*$", INVALID_POOLS),
    Word(r"^the resource pools of the node cannot be used for .*$", INVALID_POOLS),
    Word(r"^neither a device plugin nor a device class offers extended resource (.*)$", "Insufficient $1"),
    Word(r"^too little (\S+) for the pod and its devices$", "Insufficient $1"),
    Word(
        r"^claim (\S+) takes \S+ of its node: only one pod can use it$",
        "ResourceClaim $1 has a mapped device and cannot be shared across pods",
    ),
    Word(
        r"^spec\.resources\.requests\[(\S+)\] of the pod does not cover its containers and devices$",
        "pod level request for $1 is insufficient to cover the aggregated container and node-allocatable DRA requests",
    ),
    Word(r"^claim \S+ is allocated for other nodes$", ELSEWHERE),
    # The plugin refuses the second pod for the node of the first one, and then the group. dra-extender refuses both at
    # once, for the same reason.
    Word(
        r"^waiting for devices for (\d+) pods of group \S+ together$",
        f"{ELSEWHERE} (pod group is unschedulable, minCount ($1) cannot be satisfied)",
    ),
    Word(
        r"^(.* are off, request|request .* needs more devices|no devices?|no free device|no compatible device"
        r"|not enough [a-z ]+|untolerated device taint|node lacks a feature) .*$",
        CANNOT_ALLOCATE,
    ),
)
"""The first that fits counts."""
