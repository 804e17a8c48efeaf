"""DeviceTaintRules: taints that an administrator puts on devices (KEP-5055)."""

from dataclasses import dataclass

from allocator.model.devices import DeviceTaint


@dataclass(frozen=True, slots=True)
class TaintRule:
    """A DeviceTaintRule: ``taint`` on every device with the given names; None selects any.

    ``selects_none``: the rule has no device selector, which selects nothing (an empty selector selects all).
    """

    name: str
    taint: DeviceTaint
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    selects_none: bool = False
