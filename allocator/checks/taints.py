"""Device taints (KEP-5055), of ResourceSlices and of DeviceTaintRules: which of them block a request."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from allocator.checks.check import Asked, Check, DeviceState, Refusal, Situation
from allocator.checks.taint_rules import TaintRules
from allocator.model.devices import DeviceTaint, Toleration
from allocator.model.slices.device import Device
from allocator.obstacles.obstacle import Obstacle, Remedy, RemedyKind, Seen
from allocator.pools import Candidate, NodePool
from allocator.reason import Cause
from allocator.tools.spelling import is_misspelled
from allocator.usage import DeviceUsage

BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""``None`` only informs, and an unknown effect must not block (upstream's rule)."""


# The words that filter answers; `_obstacles` has those of explanations.
_CAUSE: Final = Cause("taint", "untolerated device taint for {request}", rank=70, is_temporary=True)


def blocking_taint(device: Device, tolerations: Sequence[Toleration], rules: TaintRules) -> DeviceTaint | None:
    """The first taint that blocks a request with these tolerations; None if none does."""
    taints = device.taints + rules.taints_of(device.id) if rules.rules else device.taints
    return next((taint for taint in taints if blocks(taint, tolerations)), None) if taints else None


def blocks(taint: DeviceTaint, tolerations: Sequence[Toleration]) -> bool:
    """Whether a taint blocks a request with these tolerations."""
    return taint.effect in BLOCKING_EFFECTS and not any(tolerates(each, taint) for each in tolerations)


def tolerates(toleration: Toleration, taint: DeviceTaint) -> bool:
    """Whether a toleration tolerates a taint. An empty effect stands for all effects, an empty key for all keys."""
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


def _tolerating(taint: DeviceTaint) -> tuple[Remedy, ...]:
    operator = "Equal" if taint.value else "Exists"
    value = f', value: "{taint.value}"' if taint.value else ""
    toleration = Toleration(taint.key, operator, taint.value, taint.effect)
    return (
        Remedy(
            RemedyKind.TOLERATE,
            f"taint {taint_text(taint)}",
            f"tolerate the taint {taint_text(taint)} in",
            f"tolerations: add {{key: {taint.key}, operator: {operator}{value}, effect: {taint.effect}}}",
            lambda request: replace(request, tolerations=(*request.tolerations, toleration)),
            weight=int(taint.effect == "NoExecute"),  # such a device is out of order for running pods, too
        ),
    )


def _speaks(situation: Situation, asked: Asked, candidate: Candidate, _: DeviceUsage) -> Refusal | None:
    taint = blocking_taint(candidate.device, asked.request.tolerations, situation.rules)
    return None if taint is None else Refusal(_CAUSE, taint_text(taint))


def _obstacles(situation: Situation, asked: Asked, candidate: Candidate, *_: object) -> Iterator[Seen]:
    """The taints that are not tolerated, each with the rule that it comes from."""
    device = candidate.device
    of_rules = ((rule.taint, rule.name) for rule in situation.rules.selecting(device.id))
    for taint, rule in (*((taint, "") for taint in device.taints), *of_rules):
        if blocks(taint, asked.request.tolerations):
            source = f" by DeviceTaintRule {rule}" if rule else ""
            meant = _misspelling(taint, asked.request.tolerations)
            obstacle = Obstacle(_CAUSE, f"tainted {taint_text(taint)}{source}, not tolerated{meant}")
            yield Seen(obstacle, remedies=partial(_tolerating, taint))


def taints_text(device: Device, rules: TaintRules) -> str:
    """The taints that block a device, each with the rule that it comes from."""
    of_device = (taint_text(taint) for taint in device.taints if blocks(taint, ()))
    of_rules = (rule for rule in rules.selecting(device.id) if blocks(rule.taint, ()))
    return ", ".join((*of_device, *(f"{taint_text(rule.taint)} by DeviceTaintRule {rule.name}" for rule in of_rules)))


def _misspelling(taint: DeviceTaint, tolerations: Iterable[Toleration]) -> str:
    """The toleration that is probably meant for a taint, if its key is misspelled."""
    keys = (each.key for each in tolerations if each.key != taint.key and is_misspelled(each.key, taint.key))
    return next((f"; in the toleration of {key}, did you mean {taint.key}?" for key in keys), "")


def _circumstances(view: NodePool, _: object, rules: TaintRules) -> Sequence[Hashable]:
    """The taints of rules, if a rule may select a device of the pool."""
    if not rules.concern(view.id):
        return ()
    return [_without_times(rules.taints_of(each.device.id)) for each in view.candidates]


def _without_times(taints: Iterable[DeviceTaint]) -> Hashable:
    return tuple([(taint.key, taint.value, taint.effect) for taint in taints])


TAINTS: Final = Check(
    _CAUSE,
    _speaks,
    fields=("taints",),
    gate=("device_taints", True),
    state=lambda _, __: DeviceState.TAINTED,
    words=lambda situation, candidate, _: taints_text(candidate.device, situation.rules),
    obstacles=_obstacles,
    reads=lambda candidate: _without_times(candidate.device.taints),
    circumstances=_circumstances,
)
