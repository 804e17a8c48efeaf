"""All devices that the nodes reach, judged once for each request and counted by cause."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

from allocator import AllocationMode, Device, DeviceId
from allocator.checks import Inspector, Wanted
from allocator.equivalence import device_circumstances
from allocator.obstacles import ABSENT, Held, Obstacle, ReadValues, Remedy, Seen, values_read
from allocator.pools import NodePool
from allocator.reason import UNREACHABLE
from allocator.usage import NOTHING_USED
from extender.answers.explain.explanation import Fallout, RequestReport, UnusablePool
from extender.answers.explain.holders import Holder, Holders
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Solver
from extender.planning.changes import Target

EXAMPLES: Final = 3
"""Devices that are named of a group."""

MAX_VALUES: Final = 5
"""Values of one attribute that are named."""

AT_ONCE: Final = 64
"""Devices that are judged between two pauses."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolView:
    """The part of a pool that some nodes see.

    Attributes:
        first: per alternative and candidate: the first obstacle, or None for a suitable device.
        free: per alternative: the number of suitable devices.
        held: the number of devices that are in use, whole or in part.
        signature: equal for pools that differ only in the names of their devices and holders.
    """

    pool: NodePool
    first: tuple[tuple[Seen | None, ...], ...]
    free: tuple[int, ...]
    held: int
    signature: int


class Survey:
    """A survey of the devices that nodes offer to the requests of a pod.

    Attributes:
        requests: all requests of all claims, each with the ways to serve it.
        ways: the same, in one sequence.
        views: node name to what it sees.
        features: those that are on.
        pause: lets others go on.
    """

    def __init__(
        self,
        requests: tuple[tuple[Wanted, ...], ...],
        snapshot: Snapshot,
        nodes: Sequence[NodeObject],
        solver: Solver,
        pause: Callable[[], None],
    ) -> None:
        self.requests = requests
        self.ways = tuple(way for each in requests for way in each)
        self.features = solver.features
        self.inspector = Inspector(
            snapshot.usage, snapshot.taint_rules, solver.features, solver.selectors, lambda: solver.is_late
        )
        self.views: dict[str, tuple[PoolView, ...]] = {}
        asked = {way.question: way for way in self.ways}
        self._distinct = tuple(asked.values())
        self._same = tuple(list(asked).index(way.question) for way in self.ways)
        self._snapshot = snapshot
        self.pause = pause
        self._known: dict[Hashable, PoolView] = {}
        self._signatures: dict[Hashable, int] = {}
        self._values: dict[tuple[str, str], str] = {}
        for node in nodes:
            pause()
            pools = snapshot.inventory.for_node(node.node, solver.features)
            self.views[node.name] = tuple(self._view(pool, node) for pool in pools)

    @cached_property
    def guards(self) -> tuple[tuple[int, Remedy], ...]:
        """Ways with changes after which selectors pass over the devices on which they fail."""
        seen = ((way, each) for view in self._known.values() for way, of in enumerate(view.first) for each in set(of))
        found = {(way, guard) for way, each in seen if each is not None for guard in each.guards()}
        return tuple(sorted(found, key=lambda each: (each[0], each[1].how)))

    def signature(self, node: str) -> tuple[int, ...]:
        """Equal for nodes whose devices get the same answers from all requests."""
        return tuple(view.signature for view in self.views[node])

    def free(self, node: str, way: int) -> int:
        """The number of suitable devices on a node."""
        return sum(view.free[way] for view in self.views[node])

    def lacks_some(self, node: str, way: int) -> bool:
        """Whether a device of the right kind is unavailable on a node."""
        seen = (each for view in self.views[node] for each in view.first[way] if each is not None)
        return any(each.obstacle.cause.is_temporary for each in seen)

    def free_devices(self, node: str, way: int) -> list[Device]:
        """The suitable devices on a node."""
        return [
            candidate.device
            for view in self.views[node]
            for candidate, seen in zip(view.pool.candidates, view.first[way], strict=True)
            if seen is None
        ]

    def values(self, condition: str, node: str) -> str:
        """What the devices of a node have, if a condition reads one thing: ``profile on a: 1g.5gb, 2g.10gb``.

        Each device of the node asks for it, so it is worked out once.
        """
        if (condition, node) not in self._values:
            self._values[condition, node] = self._read_values(condition, node)
        return self._values[condition, node]

    def _read_values(self, condition: str, node: str) -> str:
        reads = self.inspector.reads(condition)
        read = [values_read(reads, c.device) for view in self.views[node] for c in view.pool.candidates]
        pairs = Counter(pair for values in read for pair in values if len(values) == 1 and pair[1] != ABSENT)
        if not pairs or len({name for name, _ in pairs}) > 1:
            return ""
        most = len(pairs) if len(pairs) == MAX_VALUES + 1 else MAX_VALUES  # The last value is as short as "1 more".
        name, shown = next(iter(pairs))[0], sorted(value for (_, value), _ in pairs.most_common(most))
        more = f" and {len(pairs) - most} more" if len(pairs) > most else ""
        return f"{name} on {node}: {', '.join(shown)}{more}"

    def _view(self, pool: NodePool, node: NodeObject) -> PoolView:
        """The view of a pool, which nodes share unless its devices depend on the node."""
        key = (id(pool), device_circumstances(pool, node.node, NOTHING_USED, self._snapshot.taint_rules))
        if key not in self._known:
            judged = [tuple(self._judged(way, pool, node)) for way in self._distinct]
            held = len(self.inspector.usage.pools.get(pool.id, ()))
            facts = (pool.id.driver, pool.problem, held, tuple(frozenset(Counter(each).items()) for each in judged))
            signature = self._signatures.setdefault(facts, len(self._signatures))
            first = tuple(judged[number] for number in self._same)
            self._known[key] = PoolView(pool, first, tuple(each.count(None) for each in first), held, signature)
        return self._known[key]

    def _judged(self, way: Wanted, pool: NodePool, node: NodeObject) -> Iterator[Seen | None]:
        """The first obstacle of each device, with pauses: a pool may have tens of thousands."""
        for number, candidate in enumerate(pool.candidates):
            if number % AT_ONCE == 0:
                self.pause()
            yield next(self.inspector.obstacles(way, candidate, pool, node.node), None)

    # --- reports --------------------------------------------------------------------------------------------

    def reports(self, targets: Sequence[Target], holders: Holders) -> tuple[RequestReport, ...]:
        """One report for each alternative of each request."""
        return tuple(self._report(number, targets[way.claim], holders) for number, way in enumerate(self.ways))

    def _report(self, number: int, target: Target, holders: Holders) -> RequestReport:
        way, verdicts = self.ways[number], self._verdicts(number)
        fallen: dict[Obstacle, dict[DeviceId, ReadValues]] = {}
        for device, seen in verdicts.items():
            if seen is not None:
                fallen.setdefault(seen.obstacle, {})[device] = seen.values
        fallouts = sorted((self._fallout(*each, holders) for each in fallen.items()), key=_order)
        good = [device for device, seen in verdicts.items() if seen is None]
        takes_all = way.request.mode is AllocationMode.ALL
        need = 1 if takes_all else way.request.count
        asks = "all devices" if takes_all else f"{need} {'device' if need == 1 else 'devices'}"
        most = max(self.views, key=lambda node: self.free(node, number), default="")
        return RequestReport(
            claim=str(target.claim.key),
            source=target.source,
            request=way.label,
            asks=f"{asks} of class {way.request.device_class}",
            need=need,
            considered=len(verdicts),
            free=len(good),
            examples=tuple(good[:EXAMPLES]),
            most=(most, self.free(most, number)) if good else ("", 0),
            fallouts=tuple(fallouts),
            pools=tuple(self._unusable(way)),
            device_class=way.request.device_class,
            takes_all=takes_all,
        )

    def _verdicts(self, way: int) -> dict[DeviceId, Seen | None]:
        """Each device once; a device counts as reachable if one of the nodes reaches it."""
        found: dict[DeviceId, Seen | None] = {}
        for view in self._known.values():
            for candidate, seen in zip(view.pool.candidates, view.first[way], strict=True):
                known = found.get(candidate.device.id, _OUT_OF_REACH)
                if known is not None and known.obstacle.cause is UNREACHABLE:
                    found[candidate.device.id] = seen
        return found

    def _fallout(self, obstacle: Obstacle, devices: Mapping[DeviceId, ReadValues], holders: Holders) -> Fallout:
        first = tuple(islice(devices, EXAMPLES))
        return Fallout(
            obstacle,
            len(devices),
            tuple(Counter(devices.values()).most_common()),
            first,
            tuple((d, h) for d in first for h in self._holders(obstacle, d, holders)),
            exists=not obstacle.wanted or self._exists(obstacle),
        )

    def _holders(self, obstacle: Obstacle, device: DeviceId, holders: Holders) -> tuple[Holder, ...]:
        """Who holds a device, or the shares that leave too little of it."""
        if obstacle.held is Held.WHOLE:
            return holders.of(device)
        consumed = self.inspector.usage.device(device).consumed
        if obstacle.held is Held.NOT or obstacle.subject not in consumed:
            return ()
        return holders.sharing(device, obstacle.subject, consumed[obstacle.subject])

    def _exists(self, obstacle: Obstacle) -> bool:
        """Whether any device has the value that a condition wants."""
        reads = self.inspector.reads(obstacle.condition)
        devices = (c.device for view in self._known.values() for c in view.pool.candidates)
        return any(value == obstacle.wanted for device in devices for _, value in values_read(reads, device))

    def _unusable(self, way: Wanted) -> Iterator[UnusablePool]:
        found = {view.pool.id: view.pool for view in self._known.values() if view.pool.problem}
        for identity, pool in sorted(found.items()):
            if not self.inspector.may_come_from(way, identity):
                continue
            slices = self._snapshot.inventory.pools[identity].slices
            newest = max(s.generation for s in slices)
            published = sum(len(s.devices) for s in slices if s.generation == newest)
            yield UnusablePool(str(identity), pool.problem, pool.incomplete, published)


_OUT_OF_REACH: Final = Seen(Obstacle(UNREACHABLE, ""))


def _order(fallout: Fallout) -> tuple[object, ...]:
    """The order of causes: those of the devices that came closest to being served come first."""
    of = fallout.obstacle
    return of.cause.rank, of.of_class, -fallout.count, of.text
