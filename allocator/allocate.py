"""Allocate devices of one node for some claims: the one entry to everything else in this package."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from allocator.candidates import SUITS, Alternative, Candidates
from allocator.errors import NodeUnsuitableError
from allocator.features import Features
from allocator.ledger import Ledger
from allocator.model import Claim, DeviceClass, Node
from allocator.outcome import Allocation, Cause, Reason, Unsatisfiable
from allocator.plan import Plan, plan
from allocator.policy import BEST_FIT, Policy, View
from allocator.pools import NodePool
from allocator.result import Chosen, allocation_result
from allocator.score import merit
from allocator.search import Clock, Limits, Place, Search
from allocator.selectors import Selectors
from allocator.taints import NO_RULES, TaintRules
from allocator.usage import Usage


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be decided: all of these claims, on this node, given what is there and what is taken.

    Attributes:
        claims: claims without an allocation, in the order of the pod.
        pools: what the node sees (`Inventory.for_node`).
        usage: what allocated claims hold.
    """

    node: Node
    claims: tuple[Claim, ...]
    classes: Mapping[str, DeviceClass]
    pools: tuple[NodePool, ...]
    usage: Usage
    taint_rules: TaintRules = NO_RULES
    features: Features = field(default_factory=Features)


def allocate(
    task: Task,
    *,
    selectors: Selectors,
    clock: Clock,
    new_share_id: Callable[[], str],
    policy: Policy = BEST_FIT,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> Allocation | Unsatisfiable:
    """Find devices for all claims, or say why there are none.

    Pure but for what is passed in: the clock, for the limit on time; share ids; the selectors' memory.

    Raises:
        InvalidClaimError: a claim that cannot be served anywhere.
        SelectorError: a selector does not compile, or fails on a device that the search needed to know of.
        NodeUnsuitableError: this node contradicts the claim; others may serve it.
        SearchLimitError: the search was stopped before it knew.
    """
    usable = tuple(pool for pool in task.pools if not pool.problem)
    candidates = Candidates(task.claims, task.node, usable, task.usage, task.taint_rules, task.features, selectors)
    the_plan = plan(task.claims, task.classes, task.pools, candidates, task.features)
    ledger = Ledger(the_plan, candidates, usable, task.features)
    view = View(the_plan, candidates, ledger.counters)
    search = Search(the_plan, candidates, ledger, policy.orders(view), limits, clock)
    if not search.run():
        _check_pools(task)
        return Unsatisfiable(_reasons(the_plan, candidates, search), search.steps)
    return _allocation(task, the_plan, view, search, new_share_id)


def _allocation(task: Task, the_plan: Plan, view: View, search: Search, new_share_id: Callable[[], str]) -> Allocation:
    chosen = _chosen(the_plan, search.places)
    results = tuple(
        allocation_result(
            claim,
            [c for c in chosen if c[0].claim == index],
            view.candidates,
            task.node,
            task.features,
            new_share_id,
        )
        for index, claim in enumerate(task.claims)
    )
    options = {p.slot: (p.alternative, p.option) for p in search.places}
    taken = [p.chosen for p in search.places if p.chosen is not None]
    return Allocation(results, merit(view.candidates, view.counters, list(options.values()), taken), search.steps)


def _chosen(the_plan: Plan, places: list[Place]) -> list[Chosen]:
    """Per request: the alternative that was chosen, and its candidates."""
    taken: list[tuple[Alternative | None, list[int]]] = [(None, []) for _ in the_plan.slots]
    for place in places:
        indexes = taken[place.slot][1]
        if place.chosen is not None:
            indexes.append(place.chosen)
        taken[place.slot] = (place.alternative, indexes)
    return [(alternative, tuple(indexes)) for alternative, indexes in taken if alternative is not None]


def _check_pools(task: Task) -> None:
    """A "no" over a pool that contradicts itself is not to be believed: say so instead (upstream does, too)."""
    for pool in task.pools:
        if pool.problem and not pool.incomplete:
            claims = ", ".join(str(claim) for claim in task.claims)
            raise NodeUnsuitableError(claims, "", f"resource pool {pool.id} is invalid: {pool.problem}")


def _reasons(the_plan: Plan, candidates: Candidates, search: Search) -> tuple[Reason, ...]:
    """What spoke against the devices for the request beyond which the search never came."""
    slot = the_plan.slots[search.deepest]
    claim = str(the_plan.claims[slot.claim])
    reasons = []
    for alternative in slot.alternatives:
        for index, candidate in enumerate(candidates.all):
            refusal = candidates.refusal(alternative, index)
            if refusal is not None:
                reasons.append(Reason(claim, alternative.label, refusal.cause, candidate.device.id, refusal.detail))
    static = {verdict for alternative in slot.alternatives for verdict in alternative.verdicts}
    label = slot.alternatives[0].label if len(slot.alternatives) == 1 else slot.request.name
    refused = sorted(search.refused.get(search.deepest, ()), key=lambda r: (r.cause.value, r.detail))
    reasons.extend(Reason(claim, label, r.cause, None, r.detail) for r in refused if r not in static)
    some = [a for a in slot.alternatives if a.members is None]
    if any(v is SUITS for a in some for v in a.verdicts) and not _is_dynamic(reasons):
        reasons.append(Reason(claim, label, Cause.COUNT))
    return tuple(reasons) or (Reason(claim, label, Cause.UNREACHABLE),)


def _is_dynamic(reasons: list[Reason]) -> bool:
    return any(reason.device is None and reason.cause is not Cause.IN_USE for reason in reasons)
