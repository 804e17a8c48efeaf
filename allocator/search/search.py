"""Backtracking: serve one request after the other, one device after the other; undo and go on where that fails.

Knows slots, candidates and undo; what speaks against a device, the ledger knows. A request takes combinations,
not permutations: its next device stands behind the one before it, so none is taken twice. The first full solution
in order wins, so the order is the policy.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from allocator.checks.check import Refusal, Undo
from allocator.errors import NodeUnsuitableError
from allocator.outcome import Cause
from allocator.search.candidates import Alternative, Candidates
from allocator.search.ledger import Ledger
from allocator.search.limits import SearchBudget
from allocator.search.plan import MAX_RESULTS, Plan
from allocator.search.pruning import Pruning


@dataclass(slots=True, eq=False)
class Place:
    """The place of one device: for which request in which alternative, and how far its candidates are tried.

    Attributes:
        option: which of the alternatives.
        number: which of the devices of the request, from 0.
        before: devices that the claim has got in earlier requests.
        order, cursor: candidates to try, and the position from where to go on.
        chosen: the candidate taken; None while there is none, and where the alternative needs no device.
        failed: classes of candidates that lead nowhere from here.
    """

    slot: int
    option: int
    number: int
    before: int
    alternative: Alternative
    order: Sequence[int]
    cursor: int = 0
    chosen: int | None = None
    undo: Undo | None = None
    failed: set[int] = field(default_factory=set)


class Search:
    """One search over a plan: `run` it once, then read what it found.

    Attributes:
        places: the solution, or nothing.
        deepest: the last request that was reached.
        refused: per request: what spoke against devices that suit as such.
        busy: per request: the devices that were held, or taken by other requests of the pod.
    """

    def __init__(
        self,
        plan: Plan,
        candidates: Candidates,
        ledger: Ledger,
        orders: Callable[[Alternative], Sequence[int]],
        effort: SearchBudget,
    ) -> None:
        self._plan = plan
        self._candidates = candidates
        self._ledger = ledger
        self._orders = orders
        self._effort = effort
        self._pruning: Pruning | None = None
        self._hopeless: set[Hashable] = set()
        self.places: list[Place] = []
        self.deepest = 0
        self.refused: dict[int, set[Refusal]] = {}
        self.busy: dict[int, set[tuple[Alternative, int]]] = {}

    def run(self) -> bool:
        """Is there a solution? First without foresight; at the first dead end, what is hopeless is worked out.

        Raises:
            SearchLimitError: a limit was reached before it was known.
            SelectorError, NodeUnsuitableError: on the way, as in upstream's order.
        """
        found = self._run()
        if found is None:
            while self.places:
                self._release(self.places.pop())
            self._pruning = Pruning.of(self._plan, self._candidates, self._ledger)
            found = self._pruning.is_possible and self._run()
        return bool(found)

    def _run(self) -> bool | None:
        """True and False are final; None: a dead end before anything has been worked out."""
        if not self._plan.slots:
            return True
        place = self._open(0)
        while True:
            if place is not None and self._advance(place):
                self.places.append(place)
                if place.number + 1 < place.alternative.need:
                    place = self._next(place)
                elif place.slot + 1 < len(self._plan.slots):
                    place = self._open(place.slot + 1)
                else:
                    return True
                continue
            other = self._other_option(place)
            if other is not None:
                place = other
                continue
            if not self.places:
                return False
            if self._pruning is None:
                return None
            place = self.places.pop()
            self._release(place)

    def _open(self, slot: int) -> Place | None:
        """The first place of a request; None if it is known to lead nowhere."""
        self.deepest = max(self.deepest, slot)
        if self._pruning is not None and self._state(slot, self._pruning.classes) in self._hopeless:
            return None
        return self._option(slot, 0)

    def _option(self, slot: int, first: int) -> Place | None:
        """The first place in the first alternative, from one on, that can be served at all."""
        claim = self._plan.slots[slot].claim
        before = sum(
            p.chosen is not None and self._plan.slots[p.slot].claim == claim and p.slot < slot for p in self.places
        )
        alternatives = self._plan.slots[slot].alternatives
        for option in range(first, len(alternatives)):
            alternative = alternatives[option]
            if alternative.members == ():
                continue
            if before + alternative.need > MAX_RESULTS:
                self._note(slot, Refusal(Cause.RESULTS))
            else:
                order = self._narrowed(alternative, self._orders(alternative), 0)
                return Place(slot, option, 0, before, alternative, order)
        return None

    def _other_option(self, place: Place | None) -> Place | None:
        """After all of an alternative is tried: the next one. After the last: its request leads nowhere."""
        if place is None or place.number > 0:
            return None
        other = self._option(place.slot, place.option + 1)
        if other is None and self._pruning is not None:
            self._hopeless.add(self._state(place.slot, self._pruning.classes))
        return other

    def _next(self, place: Place) -> Place:
        """The place of the next device of the same request, behind the one chosen."""
        number = place.number + 1
        order = self._narrowed(place.alternative, place.order[place.cursor :], number)
        return Place(place.slot, place.option, number, place.before, place.alternative, order)

    def _narrowed(self, alternative: Alternative, order: Sequence[int], number: int) -> Sequence[int]:
        """Without what can't be chosen any more; nothing if too few are left for the rest of the request."""
        if self._pruning is None or alternative.members is not None:
            return order
        return self._pruning.narrowed(alternative, order, alternative.need - number)

    def _advance(self, place: Place) -> bool:
        """Take the next candidate that can be taken."""
        alternative = place.alternative
        if not alternative.need:
            place.cursor += 1
            return place.cursor == 1
        if alternative.members is not None:
            return self._advance_all(place, alternative.members[place.number])
        order, pruning = place.order, self._pruning
        if pruning is not None and place.cursor:
            place.failed.add(pruning.classes[order[place.cursor - 1]])
        while place.cursor < len(order):
            index = order[place.cursor]
            place.cursor += 1
            if pruning is not None and pruning.classes[index] in place.failed:
                continue
            self._effort.step()
            taken = self._ledger.take(alternative, index)
            if isinstance(taken, Refusal):
                if taken.cause is Cause.IN_USE:
                    self.busy.setdefault(place.slot, set()).add((alternative, index))
                    continue  # its like may be free
                self._note(place.slot, taken)
            elif pruning is not None and pruning.is_hopeless(alternative):
                taken()
            else:
                place.chosen, place.undo = index, taken
                return True
            if pruning is not None:
                place.failed.add(pruning.classes[index])
        return False

    def _advance_all(self, place: Place, index: int) -> bool:
        """Of "all devices" each must be taken; the order does not matter, so there is nothing else to try."""
        if place.cursor:
            return False
        place.cursor = 1
        self._effort.step()
        taken = self._ledger.take(place.alternative, index)
        if not isinstance(taken, Refusal):
            place.chosen, place.undo = index, taken
            return True
        self._note(place.slot, taken)
        if taken.cause is Cause.CONSTRAINT:
            raise NodeUnsuitableError(
                str(self._plan.claims[place.alternative.claim]),
                place.alternative.label,
                f"asks for all devices, but one would violate the constraint on {taken.detail}",
                self._candidates.all[index].device.id,
            )
        return False

    def _release(self, place: Place) -> None:
        if place.undo is not None:
            place.undo()
        place.chosen = place.undo = None

    def _note(self, slot: int, refusal: Refusal) -> None:
        self.refused.setdefault(slot, set()).add(refusal)

    def _state(self, slot: int, classes: Sequence[int]) -> Hashable:
        """All that the rest of the search depends on, devices of one class taken as one."""
        used: dict[tuple[int, int], int] = {}
        for place in self.places:
            if place.chosen is not None:
                claim = place.alternative.claim if self._plan.has_admin_access else 0
                key = (classes[place.chosen], claim)
                used[key] = used.get(key, 0) + 1
        claim = self._plan.slots[slot].claim
        held = sum(p.chosen is not None and p.alternative.claim == claim for p in self.places)
        return slot, held, frozenset(used.items()), self._ledger.key()
