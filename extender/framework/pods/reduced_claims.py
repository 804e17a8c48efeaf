"""Claims of which a pod gets less than the best: without optional requests, or with a less preferred alternative.

The pods of a gang get devices together. If not all of them can have the best, some get less (`Keeping.without`).
A label names what is left out: ``claim/request`` is an optional request, ``claim/request/subrequest`` is an alternative
of ``firstAvailable``.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, product
from typing import Final

from allocator import AllocationResult, Claim, LeftOut
from allocator.model.optional import optional_problem, without
from extender.cluster.objects.claims import ClaimObject
from extender.framework.pods.claims import PodClaims

NOT_FOR_ALL: Final = "not all pods of the group could have it"

_MOST_WAYS: Final = 16
"""The ways to serve a pod with less that are tried."""


def reduced(claims: PodClaims, labels: Collection[str]) -> PodClaims:
    """The claims without what the labels name; a label that fits no claim says nothing."""
    pending = tuple(replace(each, claim=reduced_claim(each.claim, labels)) for each in claims.pending)
    left_out = [
        LeftOut(str(each.claim), name, NOT_FOR_ALL)
        for each in claims.pending
        for name in each.claim.spec.optional
        if f"{each.claim.name}/{name}" in labels
    ]
    return replace(claims, pending=pending, withheld=(*claims.withheld, *left_out))


def reduced_claim(claim: Claim, labels: Collection[str]) -> Claim:
    """The claim without what the labels name."""
    spec = without(claim.spec, [name for name in claim.spec.optional if f"{claim.name}/{name}" in labels])
    requests = []
    for each in spec.requests:
        left = tuple(way for way in each.alternatives if f"{claim.name}/{each.label(way)}" not in labels)
        requests.append(replace(each, alternatives=left) if left and each.prioritized else each)
    return replace(claim, spec=replace(spec, requests=tuple(requests)))


def have_choice(claims: PodClaims) -> bool:
    """Whether a pod may get more or less."""
    return any(map(_has_choice, claims.pending))


def least_first(claims: PodClaims) -> Sequence[tuple[str, ...]]:
    """Ways to serve a pod, each as what is left out: no optional request, and one alternative of each other request.

    The last alternatives come first. Of many ways the first ones are named.
    """
    optional = [f"{each.claim.name}/{name}" for each in claims.pending for name in _optional(each.claim)]
    choices = [choice for each in claims.pending for choice in _choices(each.claim)]
    return [(*optional, *chain(*way)) for way in islice(product(*choices), _MOST_WAYS)]


def left_out(claim: Claim, result: AllocationResult) -> Iterator[str]:
    """What an allocation leaves out, as labels: optional requests, and alternatives that come before the served one."""
    served = {each.request for each in result.results}
    names = {name.partition("/")[0] for name in served}
    yield from (f"{claim.name}/{name}" for name in _optional(claim) if name not in names)
    for request in claim.spec.requests:
        if request.prioritized and request.name in names:
            for way in request.alternatives:
                if request.label(way) in served:
                    break
                yield f"{claim.name}/{request.label(way)}"


def level(labels: Sequence[str]) -> tuple[int, int]:
    """The measure of what is left out: fewer optional requests count first, then preferred alternatives."""
    alternatives = sum(label.count("/") > 1 for label in labels)
    return len(labels) - alternatives, alternatives


def _has_choice(each: ClaimObject) -> bool:
    return bool(each.claim.spec.optional) or any(len(way.alternatives) > 1 for way in each.claim.spec.requests)


def _optional(claim: Claim) -> Sequence[str]:
    """The optional requests of a claim; a claim whose annotation is wrong has none."""
    return () if not claim.spec.optional or optional_problem(claim.spec) else claim.spec.optional


def _choices(claim: Claim) -> Iterator[Sequence[Sequence[str]]]:
    """The labels to leave out of each required request with alternatives: all but one of these, the last one first."""
    optional = _optional(claim)
    for request in claim.spec.requests:
        if request.prioritized and request.name not in optional:
            labels = [f"{claim.name}/{request.label(way)}" for way in request.alternatives]
            yield [[other for other in labels if other != label] for label in reversed(labels)]
