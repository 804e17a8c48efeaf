"""Companions: the devices that may be taken with a device, where a constraint wants equal values.

A search that begins with a device without enough companions ends at a dead end, or at a later alternative of a request.
Example: four CPUs are to be on one NUMA node if possible, one NUMA node has three free CPUs, and another has eight. The
three come last in the order, so all four are found together. No policy loses a solution: where the constraint has to be
met, there is none with these devices.
"""

from collections.abc import Collection, Hashable, Sequence

from allocator.policies.policy_view import PolicyView
from allocator.search.candidates import SUITS, Alternative
from allocator.search.constraints import constraint_class


class Companions:
    """Knows of the devices of one node which of them have enough companions for the claims of a plan."""

    def __init__(self, view: PolicyView) -> None:
        self._view = view
        self._enough: dict[tuple[int, int], Collection[Hashable] | None] = {}
        self._suitable: dict[int, Sequence[int]] = {}

    def suitable(self, alternative: Alternative) -> Sequence[int]:
        """The candidates that suit an alternative, in the published order. Raises one of `UNJUDGED`."""
        found = self._suitable.get(id(alternative))
        if found is None:
            candidates = self._view.candidates
            found = [i for i in range(candidates.count) if candidates.judge(alternative, i) is SUITS]
            self._suitable[id(alternative)] = found
        return found

    def last(self, alternative: Alternative, order: Sequence[int]) -> Sequence[int]:
        """The order, with the candidates at its end that lack companions: those that lack them most come last."""
        lacking: dict[int, int] = dict.fromkeys(order, 0)
        for number, spec in alternative.covering:
            enough = self._enough_of(alternative.claim, number)
            if enough is not None:
                for index in order:
                    values = self._view.candidates.values(alternative, index, spec.attribute)
                    lacking[index] += values.isdisjoint(enough)
        return sorted(order, key=lacking.__getitem__) if any(lacking.values()) else order

    def _enough_of(self, claim: int, number: int) -> Collection[Hashable] | None:
        """The values that enough devices have for all requests of a constraint; None: any."""
        if (claim, number) not in self._enough:
            self._enough[claim, number] = self._find_enough(claim, number)
        return self._enough[claim, number]

    def _find_enough(self, claim: int, number: int) -> Collection[Hashable] | None:
        spec = self._view.plan.constraints[claim][number]
        needs: dict[str, int] = {}
        having: dict[str, list[frozenset[Hashable]]] = {}
        for slot in self._view.plan.slots:
            ways = [each for each in slot.alternatives if each.claim == claim and (number, spec) in each.covering]
            for first in ways[:1]:
                name = first.request.device_class
                needs[name] = needs.get(name, 0) + min(each.need for each in ways)
                if name not in having:  # requests of one class rarely differ in more than their numbers
                    values = self._view.candidates.values
                    having[name] = [values(first, index, spec.attribute) for index in self.suitable(first)]
        return constraint_class(spec).enough([(needs[name], having[name]) for name in needs])
