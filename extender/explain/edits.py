"""Changes to a claim, to its template, or to the pod."""

from collections.abc import Callable
from dataclasses import replace

from allocator import AllocationMode, ClaimSpec, ConstraintSpec, DeviceClass, Kind, Remedy, Request, Wanted
from extender.explain.changes import Change, Fork, Target
from extender.state.objects import Pod
from extender.state.snapshot import Snapshot


def remedied(target: Target, wanted: Wanted, remedy: Remedy) -> Change:
    """Write a request, or its device class, as a remedy says."""
    if remedy.edit_class is not None:
        name = wanted.request.device_class
        at, where, fork = f"DeviceClass {name}", f"device class {name}", _edited_class(name, remedy.edit_class)
    else:
        at, where, fork = target.at(wanted), f"request {wanted.label}", target.edited_request(wanted, remedy.edit)
    text = f"{remedy.text} {where}"
    return Change(remedy.kind, f"{at}: {remedy.what}", text, f"in {at}, {remedy.how}", fork, weight=remedy.weight)


def _edited_class(name: str, edit: Callable[[DeviceClass], DeviceClass]) -> Fork:
    return lambda snapshot: snapshot.with_class(edit(snapshot.classes[name]))


def ask_for(target: Target, wanted: Wanted, count: int) -> Change:
    """Ask for fewer devices, or for a number of devices instead of all."""
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
    """Name an existing claim or template in an entry of the pod."""
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
