"""The answer to a question, as values: each pod today and then."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from allocator.tools import JSON
from extender.answers.explain.explanation import OfferedDevice, PreemptionReport
from extender.answers.explain.made_up_nodes import MadeUpNode

MOST_PREEMPTIONS: Final = 10
"""Different requests for which evictions are looked for: those of pods that the question names come first."""


class WaitReason(Enum):
    """Why a pod waits."""

    PENDING = "pending"
    NEW = "new"
    """It does not exist."""
    DRAINED = "drained"
    """It leaves a drained node."""


class Difference(Enum):
    """How a pod's fate differs from today. The order is that of the answer."""

    LOSES = "loses its place"
    GAINS = "gets a place"
    MOVES = "moves"
    OTHER_DEVICES = "other devices"
    UNKNOWN = "not worked out"
    """There was not enough time."""
    WAITS = "waits"
    SAME = "as today"


@dataclass(frozen=True, slots=True)
class Fate:
    """Where a pod runs, or why it waits.

    Attributes:
        node: empty if the pod waits.
        reasons: each with the number of nodes that it is told of; 0: it is told of the pod.
    """

    node: str = ""
    devices: tuple[OfferedDevice, ...] = ()
    reasons: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """A pod today and then.

    Attributes:
        today: None if the pod does not exist.
        then: None if there was not enough time to find out.
        caution: why it is not as simple as that; empty if it is.
        preemption: who would be evicted for it then; None if preemption does not concern it, or was not looked at.
    """

    pod: str
    origin: WaitReason
    priority: int
    is_edited: bool
    today: Fate | None
    then: Fate | None
    caution: str = ""
    preemption: PreemptionReport | None = None

    @property
    def is_told(self) -> bool:
        """Whether the question names the pod, or its fate differs from today, as far as that is known."""
        if self.difference in (Difference.WAITS, Difference.SAME):
            return self.is_named
        return self.difference is not Difference.UNKNOWN

    @property
    def is_named(self) -> bool:
        """Whether the question is about the pod."""
        return self.is_edited or self.origin is not WaitReason.PENDING

    @property
    def difference(self) -> Difference:
        """How then differs from today."""
        before, after = self.today or Fate(), self.then
        if after is None:
            return Difference.UNKNOWN
        if before.node == after.node:
            if not after.node:
                return Difference.WAITS
            return Difference.SAME if before.devices == after.devices else Difference.OTHER_DEVICES
        if not (before.node and after.node):
            return Difference.GAINS if after.node else Difference.LOSES
        return Difference.MOVES


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """What would be.

    Attributes:
        pods: those that wait today or then, those that matter most first.
        staying: pods that stay on drained nodes, each with the reason.
        unmodeled: conditions that kube-scheduler checks and the extender does not know, in words.
        unexamined: pods that wait, and for which nobody looked who would be evicted.
        notes: what else is to be known.
        picture: the devices of the new nodes, as `extender.answers.observe.fleet.Fleet.document` has them.
    """

    pods: tuple[PodAnswer, ...]
    nodes: tuple[MadeUpNode, ...] = ()
    drained: tuple[str, ...] = ()
    staying: tuple[tuple[str, str], ...] = ()
    unmodeled: tuple[str, ...] = ()
    unexamined: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    picture: Mapping[str, JSON] = field(default_factory=dict)
