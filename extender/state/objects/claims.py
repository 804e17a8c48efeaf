"""ResourceClaims as values and as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from allocator import (
    Claim,
    Fields,
    SpecReader,
    parse_claim,
    read_claim_spec,
)
from extender.kube.api import ObjectKey
from extender.kube.encoding import dumped
from extender.kube.raw import revision

POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation of claims that were made from a template."""

SPECIAL: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of special claims; its value is "true"."""


@dataclass(frozen=True, slots=True, eq=False)
class ClaimObject:
    """A ResourceClaim, as a value and as JSON.

    Attributes:
        allocated_at: revision of the event that brought the allocation; None without an allocation, or if a list was
            the first to show it.
        listed_at: revision of the claim in the list that was the first to show the allocation, which may be older; 0 if
            an event brought it.
        raw: the object's JSON, so that unknown fields survive when it is written again.
    """

    claim: Claim
    resource_version: str
    created: str
    raw: bytes
    allocated_at: int | None = None
    listed_at: int = 0

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.claim.namespace, self.claim.name)

    @property
    def special_of(self) -> str:
        """The uid of the pod for whose extended resources the claim was made; empty for other claims."""
        is_special = self.claim.annotations.get(SPECIAL) == "true"
        return (self.claim.owner_uid or "") if is_special else ""

    @property
    def revision(self) -> int:
        """The resourceVersion as a number; 0 if it is no number."""
        return revision(self.resource_version)


def parse_claim_object(obj: Mapping[str, object], read_spec: SpecReader = read_claim_spec) -> ClaimObject:
    """A ResourceClaim of any version that is supported; see `allocator.model.json.claims.parse_claim`.

    Raises:
        InvalidObjectError: all that is wrong with it.
    """
    claim = parse_claim(obj, read_spec)
    metadata = Fields(obj, "", []).child("metadata")
    raw = dumped(without_managers(obj))
    return ClaimObject(claim, metadata.text("resourceVersion"), metadata.text("creationTimestamp"), raw)


def without_managers(obj: Mapping[str, object]) -> dict[str, object]:
    """An object without ``managedFields``, which the API server maintains and which may be most of the object."""
    metadata = obj.get("metadata")
    kept = metadata.items() if isinstance(metadata, dict) else ()
    return {**obj, "metadata": {name: value for name, value in kept if name != "managedFields"}}
