"""Laws of the allocator, over random small worlds."""

from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import count

from hypothesis import assume, given
from hypothesis import strategies as st
from immutables import Map

from allocator import (
    Allocation,
    AllocationResult,
    AllocatorError,
    Claim,
    DeviceId,
    DeviceResult,
    Features,
    Inventory,
    Limits,
    Node,
    Slice,
    Usage,
    allocate,
)
from allocator.audit import Evidence, Finding, audit
from allocator.checks.check import Refusal
from allocator.policies import FIRST_FIT, POLICIES, Policy
from allocator.search import SearchBudget
from allocator.search.candidates import Alternative, Candidates
from allocator.search.ledger import Ledger
from allocator.search.limits import TimedSelectors
from allocator.search.plan import plan
from tests.allocator.strategies import NODES, Puzzle, allocations, feature_sets, puzzles, slice_sets
from tests.allocator.worlds import JUST_HERE, NODE, SELECTORS, claim, names, ticks, want

policies = st.sampled_from(list(POLICIES.values()))


def allocation(puzzle: Puzzle, policy: Policy = FIRST_FIT) -> Allocation | None:
    outcome = replace(puzzle.world, policy=policy).allocate(*puzzle.claims)
    return outcome if isinstance(outcome, Allocation) else None


def answer(puzzle: Puzzle, policy: Policy) -> str:
    """The answer: yes, no, or the text of the error."""
    try:
        return "no" if allocation(puzzle, policy) is None else "yes"
    except AllocatorError as error:
        return repr(error)


@given(puzzles())
def test_first_fit_finds_the_first_solution_that_trying_everything_finds(puzzle: Puzzle) -> None:
    found = allocation(puzzle)
    assert (found and names(found.results)) == puzzle.reference.first(*puzzle.claims)


@given(puzzles(), policies)
def test_all_policies_agree_on_yes_no_and_error(puzzle: Puzzle, policy: Policy) -> None:
    assert answer(puzzle, policy) == answer(puzzle, FIRST_FIT)


@given(puzzles(), policies)
def test_the_score_is_between_0_and_10(puzzle: Puzzle, policy: Policy) -> None:
    found = allocation(puzzle, policy)
    assert found is None or policy.scores({"node": found.merit})["node"] in range(11)


@given(puzzles(), policies)
def test_what_is_allocated_passes_the_audit(puzzle: Puzzle, policy: Policy) -> None:
    assume(puzzle.world.features.list_type_attributes or not puzzle.has_lists)
    found = allocation(puzzle, policy)
    assume(found is not None)
    assert found is not None
    assert findings_on(puzzle, found) == []


def among(puzzle: Puzzle, policy: Policy, devices: Collection[DeviceId]) -> Allocation | None:
    """The allocation if the pools have these devices alone."""
    task = puzzle.world.task(*puzzle.claims)
    ids = count()
    narrow = replace(task, pools=tuple(pool.among(devices) for pool in task.pools))
    try:
        outcome = allocate(
            narrow, selectors=SELECTORS, clock=ticks(), new_share_id=lambda: f"again-{next(ids)}", policy=policy
        )
    except AllocatorError:
        return None
    return outcome if isinstance(outcome, Allocation) else None


@given(puzzles(all_mode=False), policies)
def test_what_is_allocated_is_found_again_among_its_own_devices(puzzle: Puzzle, policy: Policy) -> None:
    found = allocation(puzzle, policy)
    assume(found is not None)
    assert found is not None
    devices = {each.device for result in found.results for each in result.results}
    again = among(puzzle, policy, devices)
    assert again is not None
    assert {each.device for result in again.results for each in result.results} <= devices


@given(puzzles(all_mode=False), policies, st.sets(st.sampled_from(["d0", "d1", "d2", "d3", "d4"])))
def test_what_is_found_among_some_devices_passes_the_audit(puzzle: Puzzle, policy: Policy, chosen: set[str]) -> None:
    assume(puzzle.world.features.list_type_attributes or not puzzle.has_lists)
    devices = {each.id for s in puzzle.world.slices for each in s.devices if each.id.device in chosen}
    found = among(puzzle, policy, devices)
    assert found is None or findings_on(puzzle, found) == []


def findings_on(puzzle: Puzzle, found: Allocation) -> list[Finding]:
    """What the audit says of the new claims, unless what was held before breaks the same rule."""
    new = [replace(c, allocation=r) for c, r in zip(puzzle.claims, found.results, strict=True)]
    before = Evidence(puzzle.world.slices, puzzle.world.classes, holders(puzzle), {NODE.name: NODE})
    broken = {finding.rule for finding in audit(before, SELECTORS)}
    after = replace(before, claims=[*before.claims, *new])
    return [f for f in audit(after, SELECTORS) if f.rule not in broken and {str(c) for c in new} & set(f.claims)]


def holders(puzzle: Puzzle) -> list[Claim]:
    held = []
    for device in puzzle.devices:
        usage = puzzle.world.usage.device(device.id)
        if not usage.is_free:
            consumed = {n: replace(device.capacity[n].value, nano=nano) for n, nano in usage.consumed.items()}
            result = DeviceResult(
                "held", device.id, share_id=min(usage.shares, default=None), consumed_capacity=consumed
            )
            allocation = AllocationResult((result,), node_selector=JUST_HERE)
            held.append(replace(claim(want("held"), name=device.id.device), allocation=allocation))
    return held


@given(puzzles())
def test_a_device_that_becomes_free_never_turns_yes_to_no(puzzle: Puzzle) -> None:
    assume(allocation(puzzle) is not None)
    for pool, devices in puzzle.world.usage.pools.items():
        for device in (name for name, usage in devices.items() if usage.holders):
            rest = Usage(puzzle.world.usage.pools.set(pool, devices.delete(device)))
            assert allocation(puzzle.using(replace(puzzle.world, usage=rest))) is not None


@given(puzzles(all_mode=False), st.data())
def test_one_device_more_never_turns_yes_to_no(puzzle: Puzzle, data: st.DataObject) -> None:
    """Take one free device away: where there is no allocation with it, there is none without it."""
    assume(allocation(puzzle) is None)
    free = [d for d in puzzle.devices if puzzle.world.usage.device(d.id).is_free]
    assume(free)
    gone = data.draw(st.sampled_from(free))
    slices = [replace(s, devices=tuple(d for d in s.devices if d is not gone)) for s in puzzle.world.slices]
    assert allocation(puzzle.using(replace(puzzle.world, slices=slices))) is None


@given(puzzles())
def test_the_order_of_claims_does_not_matter_to_feasibility(puzzle: Puzzle) -> None:
    """But for admin access, which takes a device from later requests though not from earlier ones, as upstream."""
    assume(not puzzle.has_admin_access)
    backwards = replace(puzzle, claims=puzzle.claims[::-1])
    assert (allocation(puzzle) is None) == (allocation(backwards) is None)


@given(puzzles(), st.data())
def test_undo_restores_the_ledger_exactly(puzzle: Puzzle, data: st.DataObject) -> None:
    task = puzzle.world.task(*puzzle.claims)
    selectors = TimedSelectors(SELECTORS, SearchBudget(Limits(), ticks()))
    candidates = Candidates(task.node, task.pools, task.usage, task.taint_rules, task.features, selectors)
    the_plan = plan(task.claims, task.classes, task.pools, candidates, task.features)
    ledger = Ledger(the_plan, candidates, task.pools, task.features)
    alternatives = [a for slot in the_plan.slots for a in slot.alternatives]
    places = st.tuples(st.sampled_from(alternatives), st.integers(0, candidates.count - 1))
    undos: list[tuple[object, Callable[[], object]]] = []
    for alternative, index in data.draw(st.lists(places, max_size=8)):
        before = observed(ledger, alternatives, candidates, puzzle)
        taken = ledger.take(alternative, index)
        if isinstance(taken, Refusal):
            assert observed(ledger, alternatives, candidates, puzzle) == before
        else:
            undos.append((before, taken))
    for before, undo in reversed(undos):
        undo()
        assert observed(ledger, alternatives, candidates, puzzle) == before


def observed(ledger: Ledger, alternatives: list[Alternative], candidates: Candidates, puzzle: Puzzle) -> object:
    """The books, and what every next step would meet."""
    pool = puzzle.devices[0].id.pool_id
    answers = []
    for alternative in alternatives:
        for index in range(candidates.count):
            taken = ledger.take(alternative, index)
            answers.append(taken if isinstance(taken, Refusal) else taken())
    every = [(claim, number) for claim, own in enumerate(ledger.constraints) for number in range(len(own))]
    return ledger.key(every), puzzle.world.features.partitionable_devices and dict(ledger.counters.left(pool)), answers


@given(st.lists(allocations(), max_size=5), allocations())
def test_usage_with_and_then_without_an_allocation_is_the_same(
    before: list[AllocationResult], one: AllocationResult
) -> None:
    usage = used(before)
    assert usage.with_allocation(one).without_allocation(one) == usage


@given(st.lists(allocations(), max_size=5), st.data())
def test_usage_does_not_depend_on_the_order_of_allocations(
    results: list[AllocationResult], data: st.DataObject
) -> None:
    assert used(data.draw(st.permutations(results))) == used(results)


def used(results: list[AllocationResult]) -> Usage:
    usage = Usage()
    for each in results:
        usage = usage.with_allocation(each)
    return usage


@given(slice_sets(), st.data(), feature_sets())
def test_an_inventory_does_not_depend_on_the_order_of_slices(
    slices: list[Slice], data: st.DataObject, features: Features
) -> None:
    expected = Inventory.of(slices)
    shuffled = Inventory.of(data.draw(st.permutations(slices)))
    detour = expected
    for each in data.draw(st.lists(st.sampled_from(slices))):
        detour = detour.without_slice(each.name).with_slice(replace(each, generation=7)).with_slice(each)
    for node in NODES:
        assert seen(shuffled, node, features) == seen(expected, node, features)
        assert seen(detour, node, features) == seen(expected, node, features)
    assert shuffled.local == expected.local == detour.local
    assert shuffled.roaming == expected.roaming == detour.roaming
    assert shuffled.marked == expected.marked == detour.marked
    assert shuffled.anywhere == expected.anywhere == detour.anywhere
    assert shuffled.taking == expected.taking == detour.taking


@given(slice_sets(), feature_sets())
def test_no_pool_is_overlooked(slices: list[Slice], features: Features) -> None:
    inventory = Inventory.of(slices)
    for node in NODES:
        reached = {i for i, pool in inventory.pools.items() if pool.at(node, features) is not None}
        assert {view.id for view in inventory.for_node(node, features)} == reached


@given(slice_sets())
def test_an_inventory_without_its_slices_is_empty(slices: list[Slice]) -> None:
    inventory = Inventory.of(slices)
    for each in slices:
        inventory = inventory.without_slice(each.name)
    assert (inventory.slices, inventory.pools, inventory.local) == (Map(),) * 3
    assert (inventory.roaming, inventory.marked, inventory.anywhere, inventory.taking) == (Map(),) * 4


def seen(inventory: Inventory, node: Node, features: Features) -> list[object]:
    return [
        (
            p.id,
            p.problem,
            p.incomplete,
            [(c.device.id, c.slice.name) for c in p.candidates],
            [d.id for d in p.elsewhere],
            p.counter_sets,
            p.has_binding_conditions,
        )
        for p in inventory.for_node(node, features)
    ]
