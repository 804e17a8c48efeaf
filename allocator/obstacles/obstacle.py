"""An obstacle keeps a device from a request. It has words for people, and remedies."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final

from allocator.model.claims import DeviceRequest
from allocator.model.device_classes import DeviceClass
from allocator.obstacles.selector_conditions import ReadValues
from allocator.reason import Cause


class Held(Enum):
    """Whether claims that hold devices are in the way."""

    NOT = "no claim is in the way"
    WHOLE = "all claims that hold the device are in the way"
    SHARED = "claims use up together what the device needs: releasing some of them may suffice"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An obstacle that keeps a device from a request. Equal obstacles are one cause, on any number of devices.

    Attributes:
        text: for people, to follow a number of devices: ``in use``.
        subject: the capacity or counter that is short.
        need: how much of the subject the request would take.
        asked: how much of it the request names; empty: as much as it would take, or nothing.
        rounding: how devices come from one to the other: ``, which these devices round up to 50Gi``.
        condition: the part of a selector that does not hold.
        wanted: the one value that satisfies the condition, where the condition is as simple as that.
        of_class: the DeviceClass is at fault, not the request.
        missing: the attribute that a selector reads and that the device lacks.
        meant: the attribute that was probably meant, as the end of a sentence; or empty.
        held: whether claims are in the way.
        gate: the feature gate that is off.
        node_feature: the feature that the node does not declare.
    """

    cause: Cause
    text: str
    subject: str = ""
    need: str = ""
    asked: str = ""
    rounding: str = ""
    condition: str = ""
    wanted: str = ""
    of_class: bool = False
    missing: str = ""
    meant: str = ""
    held: Held = Held.NOT
    gate: str = ""
    node_feature: str = ""


class RemedyKind(IntEnum):
    """The object that a change touches, the least invasive first."""

    CORRECT = 0
    REPAIR = 1
    TOLERATE = 2
    ASK_FOR_LESS = 3
    DROP_CONSTRAINT = 4
    RELAX_SELECTOR = 5
    CONFIGURE = 6
    MOVE = 7
    ADD_NODE = 8
    FREE = 9


WHOLE: Final = 10_000
"""Weight of a remedy that gives up all of something; the weight of a smaller change says how much it gives up."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A way to write a request, or its DeviceClass, so that an obstacle is gone.

    Attributes:
        what: the part of the request that is changed.
        text: what to do, as an order that the name of the request completes: ``tolerate the taint x:NoSchedule in``.
        how: where in the object, and what to write there: ``selector 0: write x == 2 instead of x == 1``.
        edit: the request after the change; the same request if it is the class that is changed.
        weight: among remedies of a kind, the lightest is the least invasive.
        edit_class: the class after the change; None if the request is changed.
    """

    kind: RemedyKind
    what: str
    text: str
    how: str
    edit: Callable[[DeviceRequest], DeviceRequest] = field(compare=False)
    weight: int = 0
    edit_class: Callable[[DeviceClass], DeviceClass] | None = field(default=None, compare=False)


def _none() -> tuple[Remedy, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Seen:
    """An obstacle as it is met on a device.

    Attributes:
        values: what the device has.
        remedies: each of them removes the obstacle.
        guards: if a selector fails on the device, which rejects the pod on every node: each of them makes the selector
            pass over the device.
    """

    obstacle: Obstacle
    values: ReadValues = ()
    remedies: Callable[[], Iterable[Remedy]] = field(default=_none, compare=False)
    guards: Callable[[], Iterable[Remedy]] = field(default=_none, compare=False)
