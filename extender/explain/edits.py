"""Changes of what is asked for: of the claim, or the template that it is made from, and of the pod's own entries."""

import re
from collections.abc import Sequence
from dataclasses import replace

from allocator import (
    AllocationMode,
    ClaimSpec,
    ConstraintSpec,
    DeviceRequest,
    DeviceTaint,
    Obstacle,
    Quantity,
    Request,
    Toleration,
    Wanted,
    conditions_of,
    taint_text,
    without_condition,
)
from extender.explain.changes import Change, Kind, Target
from extender.state.objects import Pod
from extender.state.snapshot import Snapshot

_WHOLE = 100
"""Weight of doing without a capacity; that of less of it is what is given up, in percent."""


def tolerate(target: Target, wanted: Wanted, taint: DeviceTaint) -> Change:
    """Tolerate a taint of devices."""
    operator = "Equal" if taint.value else "Exists"
    toleration = Toleration(taint.key, operator, taint.value, taint.effect)
    value = f', value: "{taint.value}"' if taint.value else ""
    return Change(
        Kind.TOLERATE,
        f"{target.at(wanted)}: taint {taint_text(taint)}",
        f"tolerate the taint {taint_text(taint)} in request {wanted.label}",
        f"in {target.at(wanted)}, add to tolerations: "
        f"{{key: {taint.key}, operator: {operator}{value}, effect: {taint.effect}}}",
        target.edited_request(wanted, lambda r: replace(r, tolerations=(*r.tolerations, toleration))),
    )


def relax(target: Target, wanted: Wanted, obstacle: Obstacle) -> Change:
    """Drop a condition of a selector."""
    number, part = obstacle.number, obstacle.part
    old = wanted.request.selectors[number]
    left = without_condition(old, part)
    instead = f", which leaves: {left}" if left else ""
    return Change(
        Kind.RELAX_SELECTOR,
        f"{target.at(wanted)}: selector {number} condition {part}",
        f"drop the condition {conditions_of(old)[part]} from request {wanted.label}",
        f"in {target.at(wanted)}, remove it from selector {number}{instead}",
        target.edited_request(wanted, lambda r: replace(r, selectors=relaxed(r.selectors, number, old, part))),
    )


def relaxed(selectors: Sequence[str], number: int, old: str, part: int) -> tuple[str, ...]:
    """Selectors without a condition of one of them, ``old``: it becomes ``true``, so that others keep their numbers."""
    now, gone = selectors[number], conditions_of(old)[part]
    kept = ["true" if each == gone else each for each in conditions_of(now)]
    return (*selectors[:number], " && ".join(kept), *selectors[number + 1 :])


def correct_attribute(target: Target, wanted: Wanted, obstacle: Obstacle) -> Change | None:
    """Write the attribute that exists where a selector reads one that does not; None where that can't be told."""
    old = wanted.request.selectors[obstacle.number]
    new = corrected(old, obstacle.missing, obstacle.meant)
    if new == old:
        return None
    number = obstacle.number
    return Change(
        Kind.CORRECT,
        f"{target.at(wanted)}: selector {number} attribute {obstacle.missing}",
        f"write {obstacle.meant} instead of {obstacle.missing} in request {wanted.label}",
        f"in {target.at(wanted)}, selector {number} becomes: {new}",
        target.edited_request(
            wanted,
            lambda r: replace(
                r,
                selectors=tuple(
                    corrected(text, obstacle.missing, obstacle.meant) if i == number else text
                    for i, text in enumerate(r.selectors)
                ),
            ),
        ),
    )


def corrected(expression: str, missing: str, meant: str) -> str:
    """An expression that reads another attribute."""
    (domain, _, name), (right_domain, _, right) = missing.rpartition("/"), meant.rpartition("/")
    quoted = re.escape(domain)
    pattern = re.compile(
        rf"""device\.attributes\[(["']){quoted}\1\]\s*(?:\.\s*{re.escape(name)}\b|\[(["']){re.escape(name)}\2\])"""
    )
    return pattern.sub(lambda _: f'device.attributes["{right_domain}"].{right}', expression)


def ask_for(target: Target, wanted: Wanted, count: int) -> Change:
    """Ask for fewer devices, or for so many instead of all."""
    takes_all = wanted.request.mode is AllocationMode.ALL
    asked = "all" if takes_all else str(wanted.request.count)
    fields = f"allocationMode: ExactCount, count: {count}" if takes_all else f"count: {count}"
    return Change(
        Kind.ASK_FOR_LESS,
        f"{target.at(wanted)}: count",
        f"ask for {count} {'device' if count == 1 else 'devices'} instead of {asked} in request {wanted.label}",
        f"in {target.at(wanted)}: {fields}",
        target.edited_request(wanted, lambda r: replace(r, mode=AllocationMode.EXACT_COUNT, count=count)),
        size=1 if takes_all else wanted.request.count - count,
    )


def ask_for_capacity(target: Target, wanted: Wanted, name: str, left: Quantity) -> Change:
    """Ask for as much of a capacity as there is."""

    def edit(request: DeviceRequest) -> DeviceRequest:
        kept = tuple((n, left if n == name else amount) for n, amount in request.capacity or ())
        return replace(request, capacity=kept)

    asked = dict(wanted.request.capacity or ())[name]
    return Change(
        Kind.ASK_FOR_LESS,
        f"{target.at(wanted)}: capacity {name}",
        f"ask for {left} of {name} instead of {asked} in request {wanted.label}",
        f'in {target.at(wanted)}: capacity: {{requests: {{{name}: "{left}"}}}}',
        target.edited_request(wanted, edit),
        weight=_WHOLE - left.nano * _WHOLE // asked.nano,
    )


def drop_capacity(target: Target, wanted: Wanted, name: str) -> Change:
    """Take whatever there is of a capacity."""

    def edit(request: DeviceRequest) -> DeviceRequest:
        return replace(request, capacity=tuple(pair for pair in request.capacity or () if pair[0] != name) or None)

    return Change(
        Kind.ASK_FOR_LESS,
        f"{target.at(wanted)}: capacity {name}",
        f"do not ask for capacity {name} in request {wanted.label}",
        f"in {target.at(wanted)}: remove {name} from capacity.requests",
        target.edited_request(wanted, edit),
        weight=_WHOLE,
    )


def correct_capacity(target: Target, wanted: Wanted, name: str, meant: str) -> Change:
    """Write the capacity that exists."""

    def edit(request: DeviceRequest) -> DeviceRequest:
        return replace(
            request, capacity=tuple((meant if n == name else n, amount) for n, amount in request.capacity or ())
        )

    return Change(
        Kind.CORRECT,
        f"{target.at(wanted)}: capacity {name}",
        f"write {meant} instead of {name} in the capacity of request {wanted.label}",
        f'in {target.at(wanted)}: capacity: {{requests: {{{meant}: "{dict(wanted.request.capacity or ())[name]}"}}}}',
        target.edited_request(wanted, edit),
    )


def constraint_text(spec: ConstraintSpec) -> str:
    """A constraint as it is written."""
    kind = spec.kind.value if spec.kind else "constraint"
    return f"{kind}: {spec.attribute}"


def drop_constraint(target: Target, number: int, spec: ConstraintSpec) -> Change:
    """Do without a constraint."""
    return Change(
        Kind.DROP_CONSTRAINT,
        f"{target.source}: constraint {number}",
        f"drop the constraint {constraint_text(spec)}",
        f"in {target.source}, remove constraints[{number}]",
        target.edited(lambda s: replace(s, constraints=tuple(c for c in s.constraints if c != spec))),
    )


def correct_constraint(target: Target, number: int, spec: ConstraintSpec, meant: str) -> Change:
    """Write the attribute that exists into a constraint."""
    right = replace(spec, attribute=meant)
    return Change(
        Kind.CORRECT,
        f"{target.source}: constraint {number}",
        f"write {meant} instead of {spec.attribute} in the constraint",
        f"in {target.source}, constraints[{number}]: {constraint_text(right)}",
        target.edited(lambda s: replace(s, constraints=tuple(right if c == spec else c for c in s.constraints))),
    )


def use_class(target: Target, missing: str, meant: str) -> Change:
    """Ask for a class that exists."""

    def edit(spec: ClaimSpec) -> ClaimSpec:
        def of(request: Request) -> Request:
            ways = (replace(a, device_class=meant) if a.device_class == missing else a for a in request.alternatives)
            return replace(request, alternatives=tuple(ways))

        return replace(spec, requests=tuple(map(of, spec.requests)))

    return Change(
        Kind.CORRECT,
        f"{target.source}: class {missing}",
        f"ask for device class {meant} instead of {missing}",
        f"in {target.source}: deviceClassName: {meant}",
        target.edited(edit),
    )


def rename_reference(pod: Pod, name: str, wrong: str, right: str, *, template: bool) -> Change:
    """Let a pod's entry mean a claim or template that exists."""
    field_name = "resourceClaimTemplateName" if template else "resourceClaimName"

    def fork(snapshot: Snapshot) -> Snapshot:
        found = snapshot.pods[pod.key]
        claims = tuple(
            replace(c, claim_name=None if template else right, template_name=right if template else None)
            if c.name == name
            else c
            for c in found.claims
        )
        return snapshot.with_pod(replace(found, claims=claims))

    return Change(
        Kind.CORRECT,
        f"pod {pod}: {name}",
        f"name {'claim template' if template else 'claim'} {right} instead of {wrong}",
        f"in the pod's spec.resourceClaims, entry {name}: {field_name}: {right}",
        fork,
    )
