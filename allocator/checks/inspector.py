"""All obstacles of a device, by the same checks that the search uses; the search stops at the first one."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace

from allocator.cel import Expired, Reads, never
from allocator.cel.selectors import Selectors
from allocator.checks.check import Asked, Situation, selectors_of
from allocator.checks.counters import Counters
from allocator.checks.table import Book, books, checks_for
from allocator.checks.taint_rules import TaintRules
from allocator.model.claims import Claim
from allocator.model.device_classes import DeviceClass
from allocator.model.devices import DeviceId, PoolId
from allocator.model.features import Features
from allocator.model.nodes import Node
from allocator.model.optional import required
from allocator.model.slices.device import Device
from allocator.obstacles.obstacle import Seen
from allocator.obstacles.unmet_conditions import Expressions
from allocator.pools import Candidate, NodePool
from allocator.usage import Usage


class Wanted(Asked):
    """One alternative of a request, for explanations."""

    __slots__ = ()

    @property
    def question(self) -> Hashable:
        """Equal for alternatives that get the same answers from all devices."""
        return replace(self.request, name="", count=1), self.selectors


def ways_to_serve(claims: tuple[Claim, ...], classes: Mapping[str, DeviceClass]) -> tuple[tuple[Wanted, ...], ...]:
    """The required requests of all claims in order, each with the alternatives whose classes exist."""
    return tuple(
        tuple(
            Wanted(
                index,
                claim,
                request.name,
                request.label(each),
                each,
                selectors_of(each, classes[each.device_class]),
            )
            for each in request.alternatives
            if each.device_class in classes
        )
        for index, claim in enumerate(claims)
        for request in required(claim.spec).requests
    )


class Inspector:
    """Judges devices for one explanation, and remembers what it has worked out.

    `obstacles` and `may_come_from` raise `TimeoutError` when the time of the explanation is up.
    """

    def __init__(
        self, usage: Usage, rules: TaintRules, features: Features, selectors: Selectors, expired: Expired = never
    ) -> None:
        self.usage = usage
        self._rules = rules
        self._features = features
        self._selectors = selectors
        self._expressions = Expressions(selectors, expired)
        self._books: dict[NodePool, tuple[Book, ...]] = {}

    def obstacles(self, wanted: Wanted, candidate: Candidate, pool: NodePool, node: Node) -> Iterator[Seen]:
        """The obstacles of a device, in the order for people; empty for a suitable device."""
        device = candidate.device
        used = self.usage.device(device.id)
        situation = Situation(node, self._rules, self._features, self._selectors.matches)
        for check in checks_for(pool.fields, wanted.request, self._rules, self._features).told:
            if check.obstacles is not None:
                yield from check.obstacles(situation, wanted, candidate, used, self._expressions)
            elif check.obstacle is not None and check.speaks(situation, wanted, candidate, used) is not None:
                yield Seen(check.obstacle)
        shareable = self._features.consumable_capacity and device.allow_multiple_allocations
        if not (shareable and used.has_shares):  # a further share draws nothing more
            for book in self._books_of(pool):
                yield from book.obstacles(device)

    def may_come_from(self, wanted: Wanted, pool: PoolId) -> bool:
        """Whether devices of an unusable pool could match: yes, unless the driver's name excludes them."""
        unknown = Device(DeviceId(pool.driver, pool.pool, ""))
        return all(self._expressions.error(each.text, unknown) != "" for each in wanted.selectors)

    def reads(self, expression: str) -> Reads:
        """What an expression reads; everything, if it does not compile."""
        return self._expressions.reads(expression)

    def _books_of(self, pool: NodePool) -> tuple[Book, ...]:
        found = self._books.get(pool)
        if found is None:
            of = {pool.id: pool}
            found = self._books[pool] = books(pool.fields, Counters(of, self.usage), of, self.usage, self._features)
        return found
