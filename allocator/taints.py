"""Device taints (KEP-5055): which of them block a request, those of slices and those of DeviceTaintRules."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from allocator.model import Device, DeviceId, DeviceTaint, TaintRule, Toleration

BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""``None`` only informs, and an effect that is unknown to us must not block (upstream's rule)."""


@dataclass(frozen=True, slots=True)
class TaintRules:
    """The taint rules of a cluster, in order of their names."""

    rules: tuple[TaintRule, ...] = ()

    @classmethod
    def of(cls, rules: Iterable[TaintRule]) -> "TaintRules":
        """The rules that can select something."""
        return cls(tuple(sorted((r for r in rules if not r.selects_none), key=lambda r: r.name)))

    def taints_of(self, device: DeviceId) -> tuple[DeviceTaint, ...]:
        """The taints that rules put on a device."""
        return tuple(rule.taint for rule in self.rules if _selects(rule, device))


NO_RULES = TaintRules()


def blocking_taint(device: Device, tolerations: Sequence[Toleration], rules: TaintRules) -> DeviceTaint | None:
    """The first taint that keeps a request with these tolerations off the device, if there is one."""
    taints = device.taints + rules.taints_of(device.id) if rules.rules else device.taints
    for taint in taints:
        if taint.effect in BLOCKING_EFFECTS and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None


def tolerates(toleration: Toleration, taint: DeviceTaint) -> bool:
    """Empty effect: all effects; empty key: all keys; Exists: all values, else the values are equal."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def _selects(rule: TaintRule, device: DeviceId) -> bool:
    return (
        (rule.driver is None or rule.driver == device.driver)
        and (rule.pool is None or rule.pool == device.pool)
        and (rule.device is None or rule.device == device.device)
    )
