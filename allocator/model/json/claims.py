"""Claims and claim templates.

v1beta1 keeps the fields of ``exactly`` in the request itself.
"""

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain, starmap
from operator import itemgetter
from typing import Any, Final, TypeAlias

from allocator.model.allocations import ClaimConfig
from allocator.model.claims import (
    SCHEDULING_GROUP,
    AllocationMode,
    Claim,
    ClaimSpec,
    ClaimTemplate,
    ConstraintKind,
    ConstraintSpec,
    Consumer,
    DerivedAttribute,
    DeviceRequest,
    Request,
)
from allocator.model.json.allocations import allocation_or_none
from allocator.model.json.common import (
    V1BETA1,
    VERSIONS,
    opaque,
    read_tolerations,
    selectors,
)
from allocator.model.json.interner import Interner
from allocator.model.optional import with_optional
from allocator.model.quantity import Quantity
from allocator.tools.fields import Fields, ObjectReader

_NO_OWNER: Final = ("", "", "", "")
_MODES: Final = {"": AllocationMode.EXACT_COUNT, **{mode.value: mode for mode in AllocationMode}}
SpecReader: TypeAlias = Callable[[Fields, str], ClaimSpec]
"""Reads the spec of a claim in an ``apiVersion``; what is wrong with it becomes problems of the fields."""


def read_claim_spec(spec: Fields, api_version: str) -> ClaimSpec:
    """The spec of a claim: a `SpecReader`."""
    devices, interner = spec.child("devices"), Interner()
    return ClaimSpec(
        requests=tuple(_request(r, interner, flat=api_version == V1BETA1) for r in devices.children("requests")),
        constraints=tuple(_constraint(c) for c in devices.children("constraints")),
        configs=tuple(ClaimConfig(opaque(c), c.texts("requests")) for c in devices.children("config")),
    )


def parse_claim(obj: Mapping[str, object], read_spec: SpecReader = read_claim_spec) -> Claim:
    """A ResourceClaim of v1, v1beta2 or v1beta1, with its status.

    Args:
        obj: decoded JSON with its apiVersion.
        read_spec: reads the spec; it may return what it has read before.

    Raises:
        InvalidObjectError: all that is wrong with it.
    """
    reader = ObjectReader("ResourceClaim", obj, VERSIONS)
    metadata, status = reader.metadata, reader.top.child("status")
    annotations = metadata.text_mapping("annotations")
    owners = [owner for owner in metadata.children("ownerReferences") if owner.flag("controller")]
    kind, version, owner, owner_uid = owners[0].each_text("kind", "apiVersion", "name", "uid") if owners else _NO_OWNER
    is_of_group = kind == "PodGroup" and version.startswith(f"{SCHEDULING_GROUP}/")  # in any version of its API
    namespace, uid = metadata.each_text("namespace", "uid")
    parsed = Claim(
        namespace=namespace,
        name=reader.name,
        uid=uid,
        spec=with_optional(read_spec(reader.top.child("spec"), reader.api_version), annotations),
        allocation=allocation_or_none(status, "allocation"),
        reserved_for=_consumers(status),
        owner_uid=owner_uid if owners and not is_of_group else None,
        deleting=reader.deleting,
        annotations=annotations,
        owner_name=owner,
        pod_group=owner if is_of_group else "",
        finalizers=tuple(map(sys.intern, metadata.texts("finalizers"))),
    )
    reader.finish()
    return parsed


def parse_claim_template(obj: Mapping[str, object]) -> ClaimTemplate:
    """A ResourceClaimTemplate of v1, v1beta2 or v1beta1.

    Raises:
        InvalidObjectError: all that is wrong with it.
    """
    reader = ObjectReader("ResourceClaimTemplate", obj, VERSIONS)
    spec = reader.top.child("spec")
    metadata = spec.child("metadata")
    annotations = metadata.text_mapping("annotations")
    parsed = ClaimTemplate(
        namespace=reader.metadata.text("namespace"),
        name=reader.name,
        spec=with_optional(read_claim_spec(spec.child("spec"), reader.api_version), annotations),
        labels=metadata.text_mapping("labels"),
        annotations=annotations,
    )
    reader.finish()
    return parsed


def _request(fields: Fields, interner: Interner, *, flat: bool) -> Request:
    name = fields.required_text("name")
    subrequests = fields.children("firstAvailable")
    exactly = fields.child_or_none("exactly")
    if flat:
        is_exact = any(fields.has(field) and fields.data[field] != _UNSET.get(field) for field in _EXACT_FIELDS)
        exactly = fields if is_exact else None
    if subrequests and exactly is not None:
        fields.problem("", "exactly one of exactly and firstAvailable is allowed, but both are set")
    if subrequests:
        alternatives = tuple(_alternative(sub, sub.required_text("name"), interner) for sub in subrequests)
        return Request(name, alternatives, prioritized=True)
    return Request(name, () if exactly is None else (_alternative(exactly, "", interner),))


_EXACT_FIELDS: Final = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
)
"""What `_alternative` reads: in v1beta1, a request with one of these is an exact one."""

_UNSET: Final = {"deviceClassName": "", "allocationMode": "", "count": 0}
"""Values that do not make a request an exact one; v1beta1 servers send the first of these with alternatives."""


def _alternative(fields: Fields, name: str, interner: Interner) -> DeviceRequest:
    mode = _MODES.get(fields.text("allocationMode"))
    return DeviceRequest(
        device_class=fields.text("deviceClassName"),
        name=name,
        selectors=selectors(fields),
        mode=mode,
        count=1 if mode is AllocationMode.ALL else fields.integer("count") or 1,  # as the API defaults it
        admin_access=fields.flag("adminAccess"),
        tolerations=read_tolerations(fields),
        capacity=_capacity(fields, interner),
        derived_attributes=tuple(
            DerivedAttribute(d.required_text("name"), d.required_text("expression"))
            for d in fields.children("derivedAttributes")
        ),
    )


def _capacity(fields: Fields, interner: Interner) -> tuple[tuple[str, Quantity], ...] | None:
    """Requested amounts, sorted by name, so that equal requests are equal values."""
    capacity = fields.child_or_none("capacity")
    if capacity is None:
        return None
    return tuple(sorted(interner.read_map(capacity, "requests").items()))


def _constraint(fields: Fields) -> ConstraintSpec:
    for kind in ConstraintKind:
        attribute = fields.text_or_none(kind.value)
        if attribute is not None:
            return ConstraintSpec(kind, attribute, fields.texts("requests"))
    return ConstraintSpec(None, "", fields.texts("requests"))


_MOST_CONSUMERS: Final = 256
"""An API server allows no more."""


def _consumers(status: Fields) -> tuple[Consumer, ...]:
    """The consumers of a claim. It has up to 256, and each of their reservations sends all of them again."""
    items: list[Any] = status.items("reservedFor")
    try:
        texts = [(each.get("resource", ""), each["name"], each["uid"], each.get("apiGroup", "")) for each in items]
    except (AttributeError, KeyError, TypeError):
        texts = []
    is_usual = len(texts) <= _MOST_CONSUMERS and {*map(type, chain.from_iterable(texts))} == {str}
    if not is_usual or "" in chain(map(itemgetter(1), texts), map(itemgetter(2), texts)):
        return tuple(map(_consumer, status.children("reservedFor")))
    return tuple(starmap(_remembered_consumer, texts))


@lru_cache(maxsize=16 * _MOST_CONSUMERS)
def _remembered_consumer(resource: str, name: str, uid: str, api_group: str) -> Consumer:
    return Consumer(resource, name, uid, api_group)


def _consumer(fields: Fields) -> Consumer:
    return Consumer(
        fields.text("resource"),
        fields.required_text("name"),
        fields.required_text("uid"),
        fields.text("apiGroup"),
    )
