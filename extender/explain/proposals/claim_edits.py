"""Changes to a claim or to its template, and to device classes."""

from collections.abc import Callable
from dataclasses import replace

from allocator import AllocationMode, ConstraintSpec, DeviceClass, Remedy, RemedyKind, Wanted
from extender.explain.change import Fork, ProposedChange, Target


def remedied(target: Target, wanted: Wanted, remedy: Remedy, there: str = "") -> ProposedChange:
    """Write a request, or its device class, as a remedy says; ``there`` are the values that exist."""
    if remedy.edit_class is not None:
        name = wanted.request.device_class
        at, where, fork = f"DeviceClass {name}", f"device class {name}", _edited_class(name, remedy.edit_class)
    else:
        at, where, fork = target.at(wanted), f"request {wanted.label}", target.edited_request(wanted, remedy.edit)
    text = f"{remedy.text} {where}{f' ({there})' if there else ''}"
    immutable = "" if remedy.edit_class is not None else target.immutable
    how = f"in {at}, {remedy.how}"
    return ProposedChange(
        remedy.kind, f"{at}: {remedy.what}", text, how, fork, weight=remedy.weight, immutable=immutable
    )


def _edited_class(name: str, edit: Callable[[DeviceClass], DeviceClass]) -> Fork:
    return lambda snapshot: snapshot.with_class(edit(snapshot.classes[name]))


def ask_for(target: Target, wanted: Wanted, count: int) -> ProposedChange:
    """Ask for fewer devices, or for a number of devices instead of all."""
    takes_all = wanted.request.mode is AllocationMode.ALL
    asked = "all" if takes_all else str(wanted.request.count)
    fields = f"allocationMode: ExactCount, count: {count}" if takes_all else f"count: {count}"
    return ProposedChange(
        RemedyKind.ASK_FOR_LESS,
        f"{target.at(wanted)}: count",
        f"ask for {count} {'device' if count == 1 else 'devices'} instead of {asked} in request {wanted.label}",
        f"in {target.at(wanted)}: write {fields}",
        target.edited_request(wanted, lambda r: replace(r, mode=AllocationMode.EXACT_COUNT, count=count)),
        size=1 if takes_all else wanted.request.count - count,
        immutable=target.immutable,
    )


def constraint_text(spec: ConstraintSpec) -> str:
    """A constraint as it is written."""
    kind = spec.kind.value if spec.kind else "constraint"
    return f"{kind}: {spec.attribute}"


def drop_constraint(target: Target, number: int, spec: ConstraintSpec) -> ProposedChange:
    """Do without a constraint."""
    return ProposedChange(
        RemedyKind.DROP_CONSTRAINT,
        f"{target.source}: constraint {number}",
        f"drop the constraint {constraint_text(spec)}",
        f"in {target.source}, constraints[{number}]: remove it",
        target.edited(lambda s: replace(s, constraints=(*s.constraints[:number], *s.constraints[number + 1 :]))),
        immutable=target.immutable,
        position=number,
    )


def correct_constraint(target: Target, number: int, spec: ConstraintSpec, meant: str) -> ProposedChange:
    """Write the attribute that exists into a constraint."""
    right = replace(spec, attribute=meant)
    return ProposedChange(
        RemedyKind.CORRECT,
        f"{target.source}: constraint {number}",
        f"write {meant} instead of {spec.attribute} in the constraint",
        f"in {target.source}, constraints[{number}]: write {constraint_text(right)}",
        target.edited(lambda s: replace(s, constraints=(*s.constraints[:number], right, *s.constraints[number + 1 :]))),
        immutable=target.immutable,
        position=number,
    )
