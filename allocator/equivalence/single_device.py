"""Claims that ask for one device and nothing else: decided from which devices are held, without a search.

Where devices are partitions of others, hardly two nodes have the same devices held, but the nodes get one of a few
answers. One `Single` serves all nodes that differ only in which devices are held; its answers are those of `allocate`.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from allocator.allocate import Task
from allocator.cel.selectors import Selectors
from allocator.checks.counters import SHORT, CounterKey, counter_demand, full
from allocator.checks.in_use import IN_USE
from allocator.checks.table import needs_search
from allocator.checks.taint_rules import NO_RULES
from allocator.equivalence.counter_groups import DeviceKinds, Facts, States, counter_groups
from allocator.equivalence.tallies import Tallies
from allocator.errors import SearchLimitError
from allocator.model.claims import AllocationMode, Claim
from allocator.model.devices import Device
from allocator.model.problems import AllocatorError
from allocator.policies.merit import Merit
from allocator.policies.policy import DeviceKind, Policy, sizes_of
from allocator.reason import Cause, Reason
from allocator.request_causes import UNREACHABLE
from allocator.search.candidates import SUITS, Alternative, Candidates
from allocator.search.limits import SearchBudget, TimedSelectors
from allocator.search.plan import plan
from allocator.usage import Usage

_FREE_OR_HELD: Final = frozenset({0, 1})


class NotFound(NamedTuple):
    """There is no device for the request, for these causes."""

    request: str
    causes: frozenset[Cause]

    @property
    def reason(self) -> Reason:
        """As `Unsatisfiable.reason`."""
        return Reason(min(self.causes or {UNREACHABLE}, key=lambda cause: cause.rank), self.request)


def is_single(claims: Sequence[Claim]) -> bool:
    """Whether claims have one request for one device: required, without alternatives, constraints or admin access."""
    requests = [request for claim in claims for request in claim.spec.requests]
    if (
        len(requests) != 1
        or any(claim.spec.constraints or claim.spec.optional for claim in claims)
        or requests[0].prioritized
    ):
        return False
    return all(
        each.mode is AllocationMode.EXACT_COUNT and each.count == 1 and not each.admin_access
        for each in requests[0].alternatives
    )


class Single:
    """Answers for nodes that differ only in which devices are held.

    Args:
        request: the name of the request.
        devices: pool by pool, the devices that the node can reach, then others that consume counters of the pool.
        reached: pool by pool, how many devices the node can reach.
        full: counter to its full value.
        choose: as `Policy.single`.
        tallies: the device models; None: the policy does not weigh what is left.
    """

    def __init__(
        self,
        request: str,
        devices: Sequence[Sequence[Facts]],
        reached: Sequence[int],
        full: Mapping[CounterKey, int],
        choose: Callable[[Mapping[DeviceKind, int]], DeviceKind | None],
        tallies: Tallies | None = None,
    ) -> None:
        self._request = request
        self._choose = choose
        self._tallies = tallies
        self._devices = tuple(chain.from_iterable(devices))
        self._all_free = tuple([bytes(len(of_pool)) for of_pool in devices])  # zeros
        ends = [sum(map(len, devices[:number])) + count for number, count in enumerate(reached)]
        self._pools = [(end - count, end) for end, count in zip(ends, reached, strict=True)]
        kinds = DeviceKinds()
        self._groups = tuple(counter_groups(self._devices, full, kinds))
        self._independent: dict[DeviceKind, array[int]] = {}
        for position, device in enumerate(self._devices):
            if not device.draws and device.refused is None:
                self._independent.setdefault(kinds.of(device, {}, {}), array("I")).append(position)
        self._alone = [(p, each.tally) for p, each in enumerate(self._devices) if each.tally and not each.draws]
        self._group_of = {position: group for group in self._groups for position in group.positions}
        self._merits: dict[tuple[DeviceKind, float], Merit] = {}

    def answer(self, states: Sequence[States]) -> Merit | NotFound | None:
        """The answer of `allocate`: the merit of the allocation, or why there is none. None: only a search can tell.

        Args:
            states: pool by pool, the result of `device_circumstances`.
        """
        by_pool = [of_pool or free for of_pool, free in zip(states, self._all_free, strict=True)]
        held = by_pool[0] if len(by_pool) == 1 else tuple(chain.from_iterable(by_pool))
        if len(held) != len(self._devices) or not _FREE_OR_HELD.issuperset(held):
            return None
        firsts: dict[DeviceKind, int] = {}
        for kind, positions in self._independent.items():
            position = next((position for position in positions if held[position] == 0), None)
            if position is not None:
                firsts[kind] = position
        tally = 0
        for group in self._groups:
            state = group.state(held)
            if state is None:
                return None
            tally += state.tally
            for number, kind in state.offers:
                position = group.positions[number]
                if position < firsts.get(kind, position + 1):
                    firsts[kind] = position
        chosen = self._choose(firsts)
        if chosen is None:
            return NotFound(self._request, frozenset(self._causes(held)))
        position = firsts[chosen]
        found = self._merit(chosen, self._free_without(position, held))
        return found if self._tallies is None else self._with_leftovers(found, self._tallies, tally, position, held)

    def _merit(self, kind: DeviceKind, free: float) -> Merit:
        found = self._merits.get((kind, free))
        if found is None:
            found = self._merits[kind, free] = kind.merit._replace(free=free)
        return found

    def _with_leftovers(self, found: Merit, tallies: Tallies, grouped: int, position: int, held: States) -> Merit:
        """What is left before and after a device is taken; ``grouped``: the tally of all counter groups."""
        before = grouped + sum([tally for place, tally in self._alone if held[place] == 0])
        group = self._group_of.get(position)
        taken = self._devices[position].tally if group is None else group.taken_by(position, held)
        return found._replace(before=tallies.leftover(before), after=tallies.leftover(before - taken))

    def _free_without(self, position: int, held: States) -> float:
        """The share of a pool's devices that is free when one more is taken."""
        start, end = next((start, end) for start, end in self._pools if start <= position < end)
        return (held[start:end].count(0) - 1) / (end - start)

    def _causes(self, held: States) -> Iterator[Cause]:
        """What speaks against each device that the node can reach, if the request gets none of them."""
        for start, end in self._pools:
            for device, state in zip(self._devices[start:end], held[start:end], strict=True):
                yield device.if_held if state == 1 else device.refused or SHORT


def single_of(task: Task, selectors: Selectors, policy: Policy, budget: SearchBudget) -> Single | None:
    """The `Single` for all nodes that differ from the task's node only in what is held; None: only a search can tell.

    Of the task, whose claims are `is_single`, the usage is not read.

    Raises:
        SearchLimitError: a limit was reached.
    """
    if policy.single is None or policy.weigh is not None or any(pool.problem for pool in task.pools):
        return None
    if policy.weighs_leftover and not task.features.partitionable_devices:
        return None  # counters then count in what is left, but not in the choice
    timed = TimedSelectors(selectors, budget)
    candidates = Candidates(task.node, task.pools, Usage(), NO_RULES, task.features, timed)
    counters = {key: amount for pool in task.pools for key, amount in full(pool).items()}
    tallies = Tallies(policy.reads, counters) if policy.weighs_leftover else None
    try:
        budget.step()
        (slot,) = plan(task.claims, task.classes, task.pools, candidates, task.features).slots
        (wanted,) = slot.alternatives
        if any(needs_search(wanted.checks, each) for each in candidates.all):
            return None
        # Most devices of a node are alike: one object for all of them takes 8 bytes for each instead of 250.
        known: dict[Facts, Facts] = {}
        facts = (_facts(candidates, wanted, index, tallies) for index in range(candidates.count))
        reached = iter([known.setdefault(each, each) for each in facts])
    except SearchLimitError:
        raise
    except AllocatorError:
        return None
    devices = [[*islice(reached, len(pool.candidates)), *map(_beyond_reach, pool.elsewhere)] for pool in task.pools]
    if not task.features.partitionable_devices:
        devices = [[each._replace(draws=()) for each in of_pool] for of_pool in devices]
    numbers = [len(pool.candidates) for pool in task.pools]
    return Single(wanted.label, devices, numbers, counters, policy.single, tallies)


def _facts(candidates: Candidates, wanted: Alternative, index: int, tallies: Tallies | None) -> Facts:
    device, known = candidates.all[index].device, candidates.judge(wanted, index)
    if_free = candidates.refusal_if_free(wanted, index)
    return Facts(
        sizes_of(device),
        None if known is SUITS else known.cause,
        IN_USE.cause if if_free is None else if_free.cause,
        bool(device.consumes_counters),
        0 if tallies is None else tallies.of(device),
        counter_demand(device),
    )


def _beyond_reach(device: Device) -> Facts:
    """A device of another node that consumes counters of the pool."""
    return Facts((), UNREACHABLE, UNREACHABLE, is_part=True, draws=counter_demand(device))
