"""Specs of claims, parsed once: claims from one template have equal specs, and specs never change."""

from dataclasses import dataclass, field

from allocator import ClaimSpec, Fields, read_claim_spec
from extender.state.objects import dumped


@dataclass(slots=True)
class SpecCache:
    """Specs by JSON and API version; beyond ``limit`` all are dropped."""

    limit: int = 1000
    _read: dict[tuple[str, bytes], ClaimSpec] = field(default_factory=dict)

    def read(self, fields: Fields, api_version: str) -> ClaimSpec:
        """The spec in some fields, as a `SpecReader` of the allocator."""
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
