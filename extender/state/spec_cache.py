"""Specs of claims, read once: claims that were made of one template say the same, and a claim never changes its own."""

from dataclasses import dataclass, field

from allocator import ClaimSpec, Fields, read_claim_spec
from extender.state.objects import dumped


@dataclass(slots=True)
class SpecCache:
    """What was read before, by its JSON and the version of that. Bounded: beyond the limit it forgets all."""

    limit: int = 1000
    _read: dict[tuple[str, bytes], ClaimSpec] = field(default_factory=dict)

    def read(self, fields: Fields, api_version: str) -> ClaimSpec:
        """The spec in some fields: an `allocator.model.json.SpecReader`, whose equal answers are the same."""
        source = api_version, dumped(fields.data)
        found = self._read.get(source)
        if found is None:
            before = len(fields.problems)
            found = read_claim_spec(fields, api_version)
            if len(fields.problems) == before:
                self._keep(source, found)
        return found

    def _keep(self, source: tuple[str, bytes], spec: ClaimSpec) -> None:
        if len(self._read) >= self.limit:
            self._read.clear()
        self._read[source] = spec
