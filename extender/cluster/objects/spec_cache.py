"""Specs of claims, read once: claims of one template have equal specs, and the spec of a claim never changes."""

from allocator import ClaimSpec, read_claim_spec
from allocator.tools import Fields, Recent
from extender.kube.encoding import dumped


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
