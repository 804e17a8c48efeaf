"""Everything that speaks against a device, where the search stops at the first thing: by the checks of the search."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from allocator.capacity import has_shares
from allocator.cel import Reads
from allocator.check import Book, Check, Selector
from allocator.checks import Checks, Question, books
from allocator.counters import Counters
from allocator.explain.expressions import Expressions
from allocator.explain.obstacles import Seen
from allocator.features import Features
from allocator.model import Claim, Device, DeviceClass, DeviceId, DeviceRequest, Node, PoolId
from allocator.pools import Candidate, NodePool
from allocator.selectors import Selectors
from allocator.taints import TaintRules
from allocator.usage import Usage


@dataclass(frozen=True, slots=True)
class Wanted:
    """One way to serve a request.

    Attributes:
        claim: position of the claim among those that are looked at.
        owner: namespace/name of the claim.
        label: request, or request/subrequest.
    """

    claim: int
    owner: str
    request_name: str
    label: str
    request: DeviceRequest
    selectors: tuple[Selector, ...]

    @property
    def question(self) -> Hashable:
        """Equal for ways whose answers are the same for every device."""
        return replace(self.request, name="", count=1), self.selectors


def ways(claims: tuple[Claim, ...], classes: Mapping[str, DeviceClass]) -> tuple[tuple[Wanted, ...], ...]:
    """The requests of all claims in order, each with its alternatives, as far as their classes exist."""
    return tuple(
        tuple(
            Wanted(
                index,
                str(claim),
                request.name,
                f"{request.name}/{each.name}" if request.prioritized else request.name,
                each,
                _selectors(each, classes[each.device_class]),
            )
            for each in request.alternatives
            if each.device_class in classes
        )
        for index, claim in enumerate(claims)
        for request in claim.spec.requests
    )


def _selectors(request: DeviceRequest, of: DeviceClass) -> tuple[Selector, ...]:
    return (
        *(Selector(f"class {of.name}, selector {i}", text) for i, text in enumerate(of.selectors)),
        *(Selector(f"selector {i}", text, i) for i, text in enumerate(request.selectors)),
    )


class Inspector:
    """Looks at devices, given what is held. Of one explanation: it remembers what it has worked out."""

    def __init__(self, usage: Usage, rules: TaintRules, features: Features, selectors: Selectors) -> None:
        self.usage = usage
        self._rules = rules
        self._features = features
        self._expressions = Expressions(selectors)
        self._latest: tuple[Wanted, Node, tuple[Check, ...]] | None = None
        self._books: dict[int, tuple[Book, ...]] = {}

    def obstacles(self, wanted: Wanted, candidate: Candidate, pool: NodePool, node: Node) -> Iterator[Seen]:
        """What speaks against a device, in the order in which it is told; nothing: it is free, and suits as such."""
        device = candidate.device
        used = self.usage.device(device.id)
        for check in self._checks_of(wanted, node):
            yield from check.obstacles(candidate, used, self._expressions)
        shareable = self._features.consumable_capacity and device.allow_multiple_allocations
        if not (shareable and has_shares(used)):  # a further share draws nothing more
            for book in self._books_of(pool):
                yield from book.obstacles(device)

    def may_come_from(self, wanted: Wanted, pool: PoolId) -> bool:
        """Could devices of a pool that can't be used match? Unless the driver alone rules them out, yes."""
        unknown = Device(DeviceId(pool.driver, pool.pool, ""))
        return all(self._expressions.error(each.text, unknown) != "" for each in wanted.selectors)

    def holds(self, expression: str, device: Device) -> bool:
        """Whether an expression is true of a device; one that fails is not."""
        return self._expressions.error(expression, device) is None

    def reads(self, expression: str) -> Reads:
        """What an expression reads; everything, if it does not compile."""
        return self._expressions.reads(expression)

    def _checks_of(self, wanted: Wanted, node: Node) -> tuple[Check, ...]:
        if self._latest is None or self._latest[0] is not wanted or self._latest[1] is not node:
            question = Question(wanted, node, self._rules, self._features, self._expressions)
            self._latest = wanted, node, tuple(Checks(question).told)
        return self._latest[2]

    def _books_of(self, pool: NodePool) -> tuple[Book, ...]:
        found = self._books.get(id(pool))
        if found is None:
            of = {pool.id: pool}
            found = self._books[id(pool)] = books(Counters(of, self.usage), of, self.usage, self._features)
        return found
