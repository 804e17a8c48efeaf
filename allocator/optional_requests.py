"""Optional requests: required requests are served first, then each optional request that can be served with them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from allocator.errors import InvalidClaimError, SearchLimitError
from allocator.model.claims import Claim
from allocator.model.optional import optional_problem, required
from allocator.outcome import Allocation, LeftOut, Unsatisfiable
from allocator.tools.fields import AllocatorError


def serve_most(
    claims: Sequence[Claim], serve: Callable[[tuple[Claim, ...]], Allocation | Unsatisfiable]
) -> Allocation | Unsatisfiable:
    """Serve the required requests, and as much of the optional requests as possible.

    Optional requests are tried in the order of the claims and of their annotations. One that can be served together
    with those before it is served, with any devices for the others. An error that it brings leaves it out, too: an
    optional request never keeps the claims from being allocated.

    Args:
        claims: some of them have optional requests.
        serve: serves claims without optional requests. The steps of its answers are those of all searches so far.

    Raises:
        InvalidClaimError: an annotation names a request that its claim does not have.
        AllocatorError: of the search with the required requests alone.
    """
    for claim in claims:
        if problem := optional_problem(claim.spec):
            raise InvalidClaimError(str(claim), "", problem)
    best = serve(_with(claims, ()))
    if isinstance(best, Unsatisfiable):
        return best
    steps = best.steps
    served: list[tuple[int, str]] = []
    left_out: list[LeftOut] = []
    is_stopped = False
    for number, name in [(number, name) for number, claim in enumerate(claims) for name in claim.spec.optional]:
        try:
            outcome = serve(_with(claims, (*served, (number, name))))
        except AllocatorError as error:
            reason = str(error).removeprefix(f"claim {claims[number]}, request {name}: ")
            is_stopped = is_stopped or isinstance(error, SearchLimitError)
        else:
            steps = outcome.steps
            if isinstance(outcome, Allocation):
                best = outcome
                served.append((number, name))
                continue
            reason = outcome.reason.in_words()
        left_out.append(LeftOut(str(claims[number]), name, reason))
    merit = best.merit._replace(optional=len(served))
    return replace(best, merit=merit, steps=steps, left_out=tuple(left_out), stopped=is_stopped)


def _with(claims: Sequence[Claim], optional: Collection[tuple[int, str]]) -> tuple[Claim, ...]:
    """The claims with their required requests and some of the optional ones, all of them required now."""
    return tuple(
        [
            replace(claim, spec=required(claim.spec, beside=[name for at, name in optional if at == number]))
            for number, claim in enumerate(claims)
        ]
    )
