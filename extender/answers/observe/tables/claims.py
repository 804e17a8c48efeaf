"""The table of claims: what has become of each, and which of its devices its constraints tie by which values."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from allocator import AttributeValue, ConstraintSpec, DeviceId, DeviceResult
from allocator.search import constraint_class, constraint_covers
from allocator.tools import JSON
from extender.answers.observe.tables.devices import attribute_json
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.snapshot import Snapshot
from extender.framework.pod_and_claim_states import ClaimState, state_of_claim
from extender.tools.table import Item, Row, TableView, matches

_COLUMNS: Final = ("namespace", "claim", "state", "devices", "reservedFor")


def claims(
    snapshot: Snapshot, *, namespace: str = "", state: str = "", pod: str = "", claim: str = "", wide: bool = False
) -> TableView:
    """The claims: of one namespace, in one state, of one name, or of a pod that names, owns or has reserved them.

    A ``wide`` table also has what the claims' constraints say about the devices.
    """

    def rows() -> Iterator[Row]:
        named = [each for key, each in snapshot.pods.items() if key.name == pod]
        keys = {key for each in named for key in claim_keys(each)}
        uids = {each.uid for each in named}
        for key in sorted(
            key for key in snapshot.claims if matches(namespace, key.namespace) and matches(claim, key.name)
        ):
            found = snapshot.claims[key]
            its_state = state_of_claim(found, snapshot)
            is_of_pod = not pod or key in keys or found.claim.owner_uid in uids or _is_reserved(found, pod)
            if matches(state, its_state.value) and is_of_pod:
                yield Row(key, partial(_wide_item if wide else _item, found, its_state, snapshot))

    return TableView(_COLUMNS + (("constraints",) if wide else ()), rows(), _CELLS)


def _is_reserved(claim: ClaimObject, pod: str) -> bool:
    return any(user.resource == "pods" and user.name == pod for user in claim.claim.reserved_for)


def _wide_item(claim: ClaimObject, state: ClaimState, snapshot: Snapshot) -> Item:
    return {**_item(claim, state, snapshot), "constraints": constraints(claim, snapshot)}


def _item(claim: ClaimObject, state: ClaimState, snapshot: Snapshot) -> Item:
    held = snapshot.held_by(claim.claim.uid)
    return {
        "namespace": claim.key.namespace,
        "claim": claim.key.name,
        "uid": claim.claim.uid,
        "created": claim.created,
        "state": state.value,
        "devices": [str(result.device) for allocation in held for result in allocation.results],
        "reservedFor": [str(user) if user.is_pod_group else user.name for user in claim.claim.reserved_for],
    }


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
    """Constraints as a table shows them, with what the devices share: ``matchAttribute gpu.example.com/numa (0)``."""
    texts = (f"{row['kind']} {row['attribute']}{_shown(row['shared'])}" for row in rows)
    return ", ".join(texts) or "-"


_CELLS: Final = {"constraints": constraints_text}


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
