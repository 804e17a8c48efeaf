"""The rules of the audit, and findings. A finding is a broken rule.

A new rule is named here and judged in `allocator.audit.claim` (one claim), `cluster` (claims together) or `pods`.
"""

from dataclasses import dataclass
from enum import Enum

from allocator.model.devices import DeviceId


class Rule(Enum):
    """The rules that an audit judges by."""

    HELD_TWICE = "device held twice"
    CAPACITY = "capacity overdrawn"
    COUNTERS = "counter overdrawn"
    COMPATIBILITY = "incompatible devices on a counter set"
    SELECTOR = "selector not satisfied"
    CONSTRAINT = "constraint not satisfied"
    COUNT = "wrong number of devices"
    NODE_SELECTOR = "wrong node selector"
    CONSUMPTION = "wrong consumption"
    RESULT = "result without request"
    ALLOCATION = "bound pod without allocation"
    RESERVATION = "bound pod without reservation"
    SECOND_OPINION = "two engines disagree about a selector"


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule, the claims that break it, and the device. The device is None if several devices are concerned."""

    rule: Rule
    claims: tuple[str, ...]
    device: DeviceId | None
    message: str

    def __str__(self) -> str:
        of = f"claim {', '.join(self.claims)}" if self.claims else ""
        on = f", device {self.device}" if self.device else ""
        return ": ".join(filter(None, (self.rule.value, f"{of}{on}", self.message)))
