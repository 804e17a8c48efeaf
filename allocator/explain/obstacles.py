"""What keeps a device from a request, for people."""

from dataclasses import dataclass

from allocator.explain.conditions import ReadValues
from allocator.model.devices import DeviceTaint
from allocator.model.quantity import Quantity
from allocator.outcome import Cause


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps a device from a request. Equal ones are one cause, on however many devices.

    Attributes:
        subject: the selector's place, the taint, the capacity, ``set/counter``, the feature gate.
        condition: the part of the selector that does not hold, or that fails.
        number: of a selector of the request: which one; -1 for a class's.
        part: which of its conditions; -1 for all that a class's selector says.
        wanted: the value that the condition compares with, where it is as simple as that.
        need: what is asked for of a capacity or counter.
        error: why an expression fails, where it does.
        missing, meant: the attribute that is not there, and the one that may have been meant.
        taint: without its time.
        rule: the DeviceTaintRule that it comes from; empty for a taint of the driver.
    """

    cause: Cause
    subject: str = ""
    condition: str = ""
    number: int = -1
    part: int = -1
    wanted: str = ""
    need: str = ""
    error: str = ""
    missing: str = ""
    meant: str = ""
    taint: DeviceTaint | None = None
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """An obstacle, with the values that the device has. ``left``: of the capacity or counter that is short."""

    obstacle: Obstacle
    values: ReadValues = ()
    left: Quantity | None = None
