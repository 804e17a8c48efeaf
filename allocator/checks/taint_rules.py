"""DeviceTaintRules: taints that an administrator puts on devices (KEP-5055)."""

from collections.abc import Iterable
from dataclasses import dataclass

from allocator.model.devices import DeviceId, DeviceTaint, PoolId, TaintRule


@dataclass(frozen=True, slots=True)
class TaintRules:
    """The taint rules of a cluster, in order of their names."""

    rules: tuple[TaintRule, ...] = ()

    @classmethod
    def of(cls, rules: Iterable[TaintRule]) -> "TaintRules":
        """The rules that select any device."""
        return cls(tuple(sorted((r for r in rules if not r.selects_none), key=lambda r: r.name)))

    def taints_of(self, device: DeviceId) -> tuple[DeviceTaint, ...]:
        """The taints that rules put on a device."""
        return tuple([rule.taint for rule in self.selecting(device)])

    def selecting(self, device: DeviceId) -> tuple[TaintRule, ...]:
        """The rules that select a device."""
        return tuple([rule for rule in self.rules if rule.device in (None, device.device) and _is_for(rule, device)])

    def concern(self, pool: PoolId) -> bool:
        """Whether a rule may select a device of a pool."""
        return any(_is_for(rule, pool) for rule in self.rules)


NO_RULES = TaintRules()


def _is_for(rule: TaintRule, of: PoolId | DeviceId) -> bool:
    return rule.driver in (None, of.driver) and rule.pool in (None, of.pool)
