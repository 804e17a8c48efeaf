"""Allocate devices of one node for some claims."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from allocator.cel.selectors import Selectors
from allocator.checks.check import Refusal
from allocator.checks.in_use import IN_USE
from allocator.checks.taint_rules import NO_RULES, TaintRules
from allocator.errors import NodeUnsuitableError, SearchLimitError
from allocator.model.claims import Claim
from allocator.model.device_classes import DeviceClass
from allocator.model.devices import DeviceId
from allocator.model.features import Features
from allocator.model.nodes import Node
from allocator.optional_requests import serve_most
from allocator.outcome import Allocation, Unsatisfiable, Unserved
from allocator.policies.best_fit import BEST_FIT
from allocator.policies.leftover import NOTHING_LEFT, leftover
from allocator.policies.merit import Merit, merit
from allocator.policies.policy import Policy
from allocator.policies.policy_view import PolicyView
from allocator.pools import NodePool
from allocator.reason import COUNT, POOL, UNREACHABLE
from allocator.search.candidates import SUITS, Alternative, Candidates
from allocator.search.ledger import Ledger
from allocator.search.limits import DEFAULT_LIMITS, Clock, Limits, SearchBudget, TimedSelectors
from allocator.search.plan import Plan, Slot, plan
from allocator.search.result import Chosen, allocation_result
from allocator.search.search import Place, Search
from allocator.usage import Usage

_FOR_LAST: Final = 0.25
"""The share of the limits that is kept for a search with the last alternatives."""


@dataclass(frozen=True, slots=True)
class Task:
    """Claims to be allocated together on one node.

    Attributes:
        claims: claims without an allocation, in the order of the pod.
        pools: the pools that the node sees (`Inventory.for_node`).
        usage: what allocated claims hold.
        among: the only devices that may be taken; None: any. A request for all devices still means all of the node.
    """

    node: Node
    claims: tuple[Claim, ...]
    classes: Mapping[str, DeviceClass]
    pools: tuple[NodePool, ...]
    usage: Usage
    taint_rules: TaintRules = NO_RULES
    features: Features = field(default_factory=Features)
    among: Collection[DeviceId] | None = None


def allocate(
    task: Task,
    *,
    selectors: Selectors,
    clock: Clock,
    new_share_id: Callable[[], str],
    policy: Policy = BEST_FIT,
    limits: Limits = DEFAULT_LIMITS,
) -> Allocation | Unsatisfiable:
    """Find devices for all claims, or the reasons why there are none. Optional requests may be left out.

    If a limit stops the search for the best alternatives of requests, the last ones are tried: a preference must not
    keep a pod from devices.

    Pure except for its arguments: the clock, new share ids, and the cache of the selectors.

    Raises:
        InvalidClaimError: no node can serve a claim.
        SelectorError: a selector does not compile, or fails on a device that the search had to judge.
        NodeUnsuitableError: this node contradicts a claim; other nodes may serve it.
        SearchLimitError: the search reached a limit.
    """
    budget = SearchBudget(limits, clock)
    if not any(claim.spec.optional for claim in task.claims):
        return _serve(task, selectors, budget, new_share_id, policy)
    return serve_most(
        task.claims,
        lambda claims: _serve(replace(task, claims=claims), selectors, budget, new_share_id, policy),
    )


def _serve(
    task: Task, selectors: Selectors, budget: SearchBudget, new_share_id: Callable[[], str], policy: Policy
) -> Allocation | Unsatisfiable:
    """Find devices for all requests of all claims."""
    if not any(request.prioritized for claim in task.claims for request in claim.spec.requests):
        return _search(task, selectors, budget, new_share_id, policy)
    try:
        with budget.keeping(_FOR_LAST):
            return _search(task, selectors, budget, new_share_id, policy)
    except SearchLimitError:
        found = _search(task, selectors, budget, new_share_id, policy, prefers=False)
        if isinstance(found, Unsatisfiable):
            raise  # other alternatives may fit
        return replace(found, stopped=True)


def _search(
    task: Task,
    selectors: Selectors,
    budget: SearchBudget,
    new_share_id: Callable[[], str],
    policy: Policy,
    *,
    prefers: bool = True,
) -> Allocation | Unsatisfiable:
    """Like `_serve`, with all alternatives of requests, or (``prefers`` is false) with the last ones alone."""
    usable = tuple([pool for pool in task.pools if not pool.problem])
    timed = TimedSelectors(selectors, budget)
    candidates = Candidates(task.node, usable, task.usage, task.taint_rules, task.features, timed, task.among)
    the_plan = plan(task.claims, task.classes, task.pools, candidates, task.features)
    ledger = Ledger(the_plan, candidates, usable, task.features)
    view = PolicyView(the_plan, candidates, ledger.counters, task.classes, timed)
    before = leftover(view, (), policy.reads) if policy.weighs_leftover else NOTHING_LEFT
    search = Search(the_plan, candidates, ledger, policy.orders(view), budget, prefers=prefers)
    if not search.run():
        _check_pools(task)
        return Unsatisfiable(_reasons(task, the_plan, candidates, search), budget.steps)
    found = _allocation(task, view, search.places, budget.steps, new_share_id, policy)
    return replace(found, merit=found.merit._replace(before=before)) if before else found


def _allocation(
    task: Task, view: PolicyView, places: list[Place], steps: int, new_share_id: Callable[[], str], policy: Policy
) -> Allocation:
    chosen = _chosen(view.plan, places)
    results = []
    for index, claim in enumerate(task.claims):
        of_claim = [each for each in chosen if each[0].claim == index]
        results.append(allocation_result(claim, of_claim, view.candidates, task.node, task.features, new_share_id))
    if not policy.compares:
        return Allocation(tuple(results), Merit(), steps)
    options = {p.slot: (p.alternative, p.option) for p in places}
    taken = [p.chosen for p in places if p.chosen is not None and not p.alternative.request.admin_access]
    found = merit(view.candidates, view.counters, list(options.values()), taken)
    if policy.weigh is not None:
        found = policy.weigh(view, taken, found)
    if policy.weighs_leftover:
        found = found._replace(after=leftover(view, taken, policy.reads))
    return Allocation(tuple(results), found, steps)


def _chosen(the_plan: Plan, places: list[Place]) -> list[Chosen]:
    """The alternative that was chosen for each request, with its candidates."""
    taken: list[tuple[Alternative | None, list[int]]] = [(None, []) for _ in the_plan.slots]
    for place in places:
        indexes = taken[place.slot][1]
        if place.chosen is not None:
            indexes.append(place.chosen)
        taken[place.slot] = (place.alternative, indexes)
    return [(alternative, tuple(indexes)) for alternative, indexes in taken if alternative is not None]


def _check_pools(task: Task) -> None:
    """A "no" can't be trusted if a pool is invalid: raise instead, as upstream does."""
    for pool in task.pools:
        if pool.problem and not pool.incomplete:
            claims = ", ".join(str(claim) for claim in task.claims)
            raise NodeUnsuitableError(claims, "", f"resource pool {pool.id} is invalid: {pool.problem}")


def _reasons(task: Task, the_plan: Plan, candidates: Candidates, search: Search) -> tuple[Unserved, ...]:
    """The reasons against the devices, for the last request that the search reached."""
    slot = the_plan.slots[search.deepest]
    claim = str(the_plan.claims[slot.claim])
    label = slot.alternatives[0].label if len(slot.alternatives) == 1 else slot.request.name

    def reasons() -> Iterator[Unserved]:
        for alternative, index, refusal in _refused_devices(slot, candidates, search):
            yield Unserved(claim, alternative.label, refusal.cause, candidates.all[index].device.id, refusal.detail)
        for refusal in sorted(search.refused.get(search.deepest, ()), key=lambda r: (r.cause.text, r.detail)):
            if not any(refusal in alternative.refusals for alternative in slot.alternatives):
                yield Unserved(claim, label, refusal.cause, None, refusal.detail)
        for pool in task.pools:
            if pool.incomplete and any(candidates.may_come_from(a, pool.id) for a in slot.alternatives):
                yield Unserved(claim, label, POOL, None, f"{pool.id}: {pool.problem}")

    found = tuple(reasons())
    if _has_some(slot, candidates, search) and not any(r.cause.of_choice for r in found):
        found += (Unserved(claim, label, COUNT),)
    return found or (Unserved(claim, label, UNREACHABLE),)


def _refused_devices(slot: Slot, candidates: Candidates, search: Search) -> Iterator[tuple[Alternative, int, Refusal]]:
    """The devices that are refused whatever else is taken. A device in use that would not match does not match."""
    busy = search.busy.get(search.deepest, set())
    for alternative in slot.alternatives:
        for index, known in enumerate(alternative.refusals):
            if (alternative, index) in busy or (known is not None and known.cause is IN_USE.cause):
                held = Refusal(IN_USE.cause) if candidates.held[index] else None
                refusal = candidates.refusal_if_free(alternative, index) or held
            else:
                refusal = None if known is SUITS else known
            if refusal is not None:
                yield alternative, index, refusal


def _has_some(slot: Slot, candidates: Candidates, search: Search) -> bool:
    """Whether there are devices for the request: then they are too few, or other requests of the pod have them."""
    refused = {(alternative, index) for alternative, index, _ in _refused_devices(slot, candidates, search)}
    return any(
        (alternative, index) not in refused
        for alternative in slot.alternatives
        if alternative.members is None
        for index in range(candidates.count)
    )
