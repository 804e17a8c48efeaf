"""Constraints of an allocated claim in words: which of its devices they tie, and by which values."""

from collections.abc import Iterable, Mapping
from typing import Any

from allocator import AttributeValue, ConstraintSpec, DeviceId, DeviceResult
from allocator.search import constraint_class, constraint_covers
from allocator.tools import JSON
from extender.answers.observe.tables.devices import attribute_json
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.snapshot import Snapshot


def constraints(claim: ClaimObject, snapshot: Snapshot) -> list[JSON]:
    """A row for each constraint of a claim; none if nothing is allocated.

    ``{"kind": "matchAttribute", "attribute": NAME, "devices": [{"request", "device", "values": [VALUE]}], "shared":
    [VALUE]}``: ``values`` are what the device publishes now, ``shared`` what all of them have in common. Both are empty
    for an attribute that the request computes.
    """
    results = [each for allocation in snapshot.held_by(claim.claim.uid) for each in allocation.results]
    return (
        [_constraint(spec, results, snapshot) for spec in claim.claim.spec.constraints if spec.kind] if results else []
    )


def constraints_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """As a table shows them: ``matchAttribute gpu.example.com/numa (0)``; what the devices share is in brackets."""
    texts = (f"{row['kind']} {row['attribute']}{_shown(row['shared'])}" for row in rows)
    return ", ".join(texts) or "-"


def _shown(values: list[JSON]) -> str:
    return f" ({' '.join(map(str, values))})" if values else ""


def _constraint(spec: ConstraintSpec, results: Iterable[DeviceResult], snapshot: Snapshot) -> JSON:
    covered = [each for each in results if constraint_covers(spec, *_names(each.request))]
    values = [_values(each.device, spec.attribute, snapshot) for each in covered]
    rows: list[JSON] = [
        {"request": each.request, "device": str(each.device), "values": [*of_device]}
        for each, of_device in zip(covered, values, strict=True)
    ]
    shared = _shared(values) if constraint_class(spec).ties else []
    kind = spec.kind.value if spec.kind else ""
    return {"kind": kind, "attribute": spec.attribute, "devices": rows, "shared": [*shared]}


def _names(request: str) -> tuple[str, str]:
    """The name of the request, and of its chosen subrequest."""
    name, _, alternative = request.partition("/")
    return name, alternative


def _values(device: DeviceId, attribute: str, snapshot: Snapshot) -> list[JSON]:
    """The values of an attribute of a device; of a list, its elements. Empty if it is not published."""
    pool = snapshot.inventory.pools.get(device.pool_id)
    published = (each for origin in (pool.newest if pool else ()) for each in origin.devices)
    value: AttributeValue | None = next(
        (each.attributes.get(attribute) for each in published if each.id == device), None
    )
    if value is None:
        return []
    return [attribute_json(each) for each in value] if isinstance(value, tuple) else [attribute_json(value)]


def _shared(values: list[list[JSON]]) -> list[JSON]:
    """The values that all devices have; in Python ``True == 1``, so each counts with its type."""
    typed = [[(type(each), each) for each in of_device] for of_device in values]
    return [each for kind, each in (typed[0] if typed else ()) if all((kind, each) in other for other in typed)]
