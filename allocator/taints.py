"""Device taints (KEP-5055): which of them block a request, those of slices and those of DeviceTaintRules."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from allocator.check import Check, Refusal
from allocator.explain.expressions import Expressions
from allocator.explain.obstacles import Obstacle, Seen
from allocator.model import Device, DeviceId, DeviceTaint, TaintRule, Toleration
from allocator.outcome import Cause
from allocator.pools import Candidate, NodePool
from allocator.usage import DeviceUsage

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
    return next((taint for taint in taints if blocks(taint, tolerations)), None) if taints else None


def blocks(taint: DeviceTaint, tolerations: Sequence[Toleration]) -> bool:
    """Does a taint keep a request with these tolerations off a device?"""
    return taint.effect in BLOCKING_EFFECTS and not any(tolerates(each, taint) for each in tolerations)


def tolerates(toleration: Toleration, taint: DeviceTaint) -> bool:
    """Empty effect: all effects; empty key: all keys; Exists: all values, else the values are equal."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def taint_text(taint: DeviceTaint) -> str:
    """A taint as kubectl writes it."""
    return f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"


class TaintCheck(Check):
    """Does the request tolerate the device's taints?"""

    __slots__ = ("_rules", "_tolerations")
    cause = Cause.TAINT

    def __init__(self, tolerations: Sequence[Toleration], rules: TaintRules) -> None:
        self._tolerations = tolerations
        self._rules = rules

    def speaks(self, candidate: Candidate, _: DeviceUsage, /) -> Refusal | None:
        """The first taint that is not tolerated."""
        taint = blocking_taint(candidate.device, self._tolerations, self._rules)
        return None if taint is None else Refusal(Cause.TAINT, taint_text(taint))

    def obstacles(self, candidate: Candidate, _: DeviceUsage, __: Expressions, /) -> Iterator[Seen]:
        """All taints that are not tolerated, with the rule that each comes from."""
        device = candidate.device
        of_rules = ((rule.taint, rule.name) for rule in self._rules.rules if _selects(rule, device.id))
        for taint, rule in (*((taint, "") for taint in device.taints), *of_rules):
            if blocks(taint, self._tolerations):
                alike = DeviceTaint(taint.key, taint.effect, taint.value)
                yield Seen(Obstacle(Cause.TAINT, taint_text(taint), taint=alike, rule=rule))

    @staticmethod
    def reads(candidate: Candidate, /) -> Hashable:
        """The driver's taints, their times aside."""
        return _without_times(candidate.device.taints)

    def circumstances(self, view: NodePool, /) -> Sequence[Hashable]:
        """The taints by rules, if there are rules for the pool."""
        if not any(r.driver in (None, view.id.driver) and r.pool in (None, view.id.pool) for r in self._rules.rules):
            return ()
        return [_without_times(self._rules.taints_of(c.device.id)) for c in view.candidates]


def _without_times(taints: Iterable[DeviceTaint]) -> Hashable:
    return tuple([(taint.key, taint.value, taint.effect) for taint in taints])


def _selects(rule: TaintRule, device: DeviceId) -> bool:
    return (
        (rule.driver is None or rule.driver == device.driver)
        and (rule.pool is None or rule.pool == device.pool)
        and (rule.device is None or rule.device == device.device)
    )
