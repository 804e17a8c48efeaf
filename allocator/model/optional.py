"""Optional requests: a claim's annotation names requests that are left out where they can't be served.

Source: KEP-3063, "Implementing optional resources".
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from allocator.model.claims import Claim, ClaimSpec
from allocator.tools.printable import shown
from allocator.tools.spelling import hint

OPTIONAL_REQUESTS: Final = "dra-extender.dev/optional-requests"
"""Annotation of a claim: the names of its optional requests, with commas between them, the most wanted first."""


def with_optional(spec: ClaimSpec, annotations: Mapping[str, str]) -> ClaimSpec:
    """The spec with the optional requests that an annotation names; the same spec if there is no annotation."""
    text = annotations.get(OPTIONAL_REQUESTS)
    if text is None:
        return spec
    return replace(spec, optional=tuple(dict.fromkeys(filter(None, map(str.strip, text.split(","))))))


def optional_problem(spec: ClaimSpec) -> str:
    """The problem with the annotation: it names a request that the claim does not have. Empty if it is right."""
    names = {request.name for request in spec.requests}
    for name in spec.optional:
        if name not in names:
            parent = name.partition("/")[0]
            meant = f"; an alternative has no name here, write {parent}" if parent in names else hint(name, names)
            return f"annotation {OPTIONAL_REQUESTS}: there is no request {shown(name)}{meant}"
    return ""


def not_served(claim: Claim) -> tuple[str, ...]:
    """The optional requests for which an allocated claim has no device."""
    results = claim.allocation.results if claim.allocation is not None else ()
    served = {result.request.partition("/")[0] for result in results}
    return tuple([name for name in claim.spec.optional if name not in served])


def required(spec: ClaimSpec, *, beside: Collection[str] = ()) -> ClaimSpec:
    """The spec without its optional requests, except some of them, which are required then.

    Constraints keep their names, and hold over the requests that are left.

    Args:
        spec: of a claim.
        beside: optional requests to keep.
    """
    out = set(spec.optional).difference(beside)
    return replace(spec, requests=tuple([each for each in spec.requests if each.name not in out]), optional=())


def without(spec: ClaimSpec, names: Iterable[str]) -> ClaimSpec:
    """The spec without some of its optional requests; the others stay optional."""
    out = set(names)
    return replace(
        spec,
        requests=tuple([each for each in spec.requests if each.name not in out]),
        optional=tuple([name for name in spec.optional if name not in out]),
    )
