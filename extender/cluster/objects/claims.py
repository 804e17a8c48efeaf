"""ResourceClaims as values and as JSON, and the annotations of a claim that are read.

Specs are read once: claims of one template have equal specs, and the spec of a claim never changes. Annotations say
when a claim is allocated: with its first pod, or as soon as possible (KEP-3063, "Allocation modes").
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from allocator import Claim, ClaimSpec, ClaimTemplate, parse_claim, parse_claim_template
from allocator.model.json import PARAMETERS_REF, SpecReader, read_claim_spec
from allocator.model.optional import OPTIONAL_REQUESTS
from allocator.tools import Fields, Recent, did_you_mean, nearest, shown
from extender.kube.api import ObjectKey, revision
from extender.kube.claim_rules import FINALIZER
from extender.kube.encoding import dumped

POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation of claims that were made from a template."""

SPECIAL: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of special claims; its value is "true"."""

CONFIRMED: Final = "dra-extender/confirmed"
"""Annotation of a claim: the pod of its last confirmed reservation, and that pod's latest fence at that time."""

TAKING: Final = "dra-extender/taking"
"""Annotation of a claim that somebody is about to take from a PodGroup: the version that the mark was made from."""

ALLOCATED_FOR: Final = "dra-extender/allocated-for"
"""Annotation of a claim that is allocated before it is reserved: the uid of the pod, which has a node already."""

MARK: Final = "dra-extender.dev/negotiation"
"""Annotation of a claim: controller, number of the attempt, and state."""

MARK_FINALIZER: Final = "dra-extender.dev/controller"
"""Finalizer of a marked claim."""

DEALLOCATION_REQUESTED: Final = "dra-extender.dev/deallocation-requested"
"""Annotation of a claim: its controller is to deallocate it, and removes the annotation then. The proposal has a field
``status.deallocationRequested``, which claims of today do not have."""

ALLOCATION_MODE: Final = "dra-extender.dev/allocation-mode"
"""Annotation of a claim: `IMMEDIATE` or `DELAYED`."""

PRIORITY: Final = "dra-extender.dev/priority"
"""Annotation of a claim that is allocated immediately: a whole number; claims with larger numbers go first."""

READ: Final = frozenset(
    {
        ALLOCATED_FOR,
        ALLOCATION_MODE,
        CONFIRMED,
        DEALLOCATION_REQUESTED,
        MARK,
        OPTIONAL_REQUESTS,
        PARAMETERS_REF,
        POD_CLAIM_NAME,
        PRIORITY,
        SPECIAL,
        TAKING,
    }
)
"""All annotations of a claim that are read."""

IMMEDIATE: Final = "Immediate"
DELAYED: Final = "WaitForFirstConsumer"

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_MOST: Final = 2**31 - 1


def is_immediate(claim: Claim) -> bool:
    """Whether a claim is to be allocated before a pod needs it."""
    return claim.annotations.get(ALLOCATION_MODE) == IMMEDIATE


def priority_of(claim: Claim) -> int:
    """The priority of a claim among those that are allocated immediately."""
    return _number(claim.annotations.get(PRIORITY, "0")) or 0


def mode_problem(annotations: Mapping[str, str]) -> str:
    """The problem with the annotations: such a claim is not allocated at all. Empty if they are right."""
    mode, priority = annotations.get(ALLOCATION_MODE), annotations.get(PRIORITY)
    if mode is not None and mode not in {IMMEDIATE, DELAYED}:
        meant = did_you_mean(nearest(mode, (IMMEDIATE, DELAYED))) or f"; there are {IMMEDIATE} and {DELAYED}"
        return f"annotation {ALLOCATION_MODE}: unknown mode {shown(mode)}{meant}"
    if priority is None:
        return ""
    if _number(priority) is None:
        return f"annotation {PRIORITY}: {shown(priority)} is not a whole number of 32 bits"
    if mode != IMMEDIATE:
        return f"annotation {PRIORITY}: needs annotation {ALLOCATION_MODE}: {IMMEDIATE}"
    return ""


def _number(text: str) -> int | None:
    found = int(text) if _NUMBER.fullmatch(text) else None
    return found if found is not None and -_MOST - 1 <= found <= _MOST else None


_SPARE_CHARACTERS: Final = 1024
"""Labels and annotations that nothing is decided from are kept up to this length, so that most claims are kept whole:
``kubectl apply`` and Helm add some to many claims."""

_LONGEST_ANNOTATION: Final = 8192
"""Characters that are kept of an annotation that is read: the names of 32 alternatives take half as many."""

_FINALIZERS: Final = frozenset({FINALIZER, MARK_FINALIZER})

_GROWING: Final = ("labels", "annotations", "finalizers", "ownerReferences")
"""The fields of the metadata that may be long."""

_MOST_ENTRIES: Final = 16
"""Finalizers and owners of which all are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class ClaimObject:
    """A ResourceClaim, as a value and as JSON.

    Attributes:
        allocated_at: revision of the event that brought the allocation; None without an allocation, or if a list was
            the first to show it.
        listed_at: revision of the claim in the list that was the first to show the allocation, which may be older; 0 if
            an event brought it.
        raw: the object's JSON, so that unknown fields survive when its status is written again.
        is_whole: the JSON has all but managed fields. Otherwise its metadata has only what decisions need: it must be
            read before it is replaced.
    """

    claim: Claim
    resource_version: str
    created: str
    raw: bytes
    allocated_at: int | None = None
    listed_at: int = 0
    is_whole: bool = True

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.claim.namespace, self.claim.name)

    @property
    def special_of(self) -> str | None:
        """The uid of the pod for whose extended resources the claim was made; None for other claims."""
        is_special = self.claim.annotations.get(SPECIAL) == "true"
        return (self.claim.owner_uid or None) if is_special else None

    @property
    def revision(self) -> int:
        """The resourceVersion as a number; 0 if it is no number."""
        return revision(self.resource_version)


def parse_claim_object(obj: Mapping[str, object], read_spec: SpecReader = read_claim_spec) -> ClaimObject:
    """A ResourceClaim of any version that is supported; see `allocator.model.json.claims.parse_claim`.

    Raises:
        InvalidObjectError: all that is wrong with it.
    """
    kept, is_whole = _shortened_object(obj)
    claim = parse_claim(kept, read_spec)
    version, created = Fields(kept["metadata"], "", []).each_text("resourceVersion", "creationTimestamp")
    return ClaimObject(claim, version, created, dumped(kept), is_whole=is_whole)


def parse_template_object(obj: Mapping[str, object]) -> ClaimTemplate:
    """A ResourceClaimTemplate of any version that is supported, without what nothing is decided from.

    Raises:
        InvalidObjectError: all that is wrong with it.
    """
    spec = obj.get("spec")
    metadata = spec.get("metadata") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        return parse_claim_template(obj)
    short = {name: _shortened(name, value) for name, value in metadata.items() if name != "labels"}
    return parse_claim_template({**obj, "spec": {**spec, "metadata": short}})


def _shortened_object(obj: Mapping[str, object]) -> tuple[Mapping[str, Any], bool]:
    """What is kept of an object, and whether that is all of it; whoever may make claims decides how long they are."""
    whole = without_managers(obj)
    metadata: dict[str, object] = whole["metadata"]  # type: ignore[assignment]  # it is made there
    for growing in _GROWING:
        if growing in metadata and _is_long(growing, metadata[growing]):
            short = {name: _shortened(name, value) for name, value in metadata.items() if name != "labels"}
            return {**whole, "metadata": short}, False
    return whole, True


def _is_long(name: str, value: object) -> bool:
    """Whether a field of the metadata is not kept whole."""
    if name in {"labels", "annotations"} and isinstance(value, dict):
        spare = longest = 0
        for key, text in value.items():
            if isinstance(text, str):
                if key in READ:
                    longest = max(longest, len(text))
                else:
                    spare += len(key) + len(text)
        return spare > _SPARE_CHARACTERS or longest > _LONGEST_ANNOTATION
    return name in {"finalizers", "ownerReferences"} and isinstance(value, list) and len(value) > _MOST_ENTRIES


def _shortened(name: str, value: object) -> object:
    """What decisions need of a field of the metadata. A value of a wrong type stays: it is a problem of the claim."""
    if name == "annotations" and isinstance(value, dict):
        return {key: _cut(text) for key, text in value.items() if key in READ or not isinstance(text, str)}
    if name == "finalizers" and isinstance(value, list) and len(value) > _MOST_ENTRIES:
        return [each for each in value if not isinstance(each, str) or each in _FINALIZERS]
    if name == "ownerReferences" and isinstance(value, list) and len(value) > _MOST_ENTRIES:
        return [each for each in value if not isinstance(each, dict) or each.get("controller")]
    return value


def _cut(text: object) -> object:
    """An annotation; one that is too long ends with dots, so that nothing takes it for a valid one."""
    is_long = isinstance(text, str) and len(text) > _LONGEST_ANNOTATION
    return f"{text[:_LONGEST_ANNOTATION]}..." if is_long and isinstance(text, str) else text


def without_managers(obj: Mapping[str, object]) -> dict[str, object]:
    """An object without ``managedFields``, which the API server maintains and which may be most of the object."""
    metadata = obj.get("metadata")
    kept = metadata.items() if isinstance(metadata, dict) else ()
    return {**obj, "metadata": {name: value for name, value in kept if name != "managedFields"}}


class SpecCache:
    """Claim specs, by the version of the API and the JSON of the spec.

    Args:
        limit: the most bytes of JSON. A parsed spec takes several times as many bytes.
    """

    def __init__(self, limit: int = 4_000_000) -> None:
        self._read: Recent[ClaimSpec] = Recent(limit, lambda source, _: len(source[1]))

    def read(self, fields: Fields, api_version: str) -> ClaimSpec:
        """The spec in some fields: an `allocator.model.json.claims.SpecReader`, whose equal answers are the same."""
        source = api_version, dumped(fields.data)
        found = self._read.find(source)
        if found is None:
            before = len(fields.problems)
            found = read_claim_spec(fields, api_version)
            if len(fields.problems) == before:
                self._read.keep(source, found)
        return found
