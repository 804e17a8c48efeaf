"""What a node has in view, and how much of it nodes have in common."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from allocator.equivalence.fingerprint import (
    AttributeReads,
    all_columns,
    circumstances,
    column,
    pattern,
    settled,
    structure,
)
from allocator.model import Node
from allocator.model.features import Features
from allocator.pools import NodePool
from allocator.usage import NOTHING_USED, PoolUsage
from extender.state.snapshot import Snapshot

_STATES: Final = 5000
"""That have a number at a time, about: of nodes with many devices, each takes a kilobyte."""


class Numbers:
    """A number for every value, the same for equal ones: short to keep and quick to compare.

    Bounded: it forgets all values when they are too many, but never gives a number twice, so that what has been
    forgotten is at worst taken for something new. Safe to use from several threads.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self._limit = limit
        self._numbers: dict[Hashable, int] = {}
        self._next = count()

    def of(self, value: Hashable) -> int:
        """The number of a value."""
        found = self._numbers.get(value)
        if found is None:
            if len(self._numbers) >= self._limit:
                self._numbers = {}
            found = self._numbers.setdefault(value, next(self._next))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """A pool as some nodes see it, with the numbers of what decisions depend on.

    Attributes:
        structure: of everything but attributes.
        devices: of a roaming pool, which devices of it these nodes see: what is held of them is known by name. None for
            other pools.
        faces: of what is seen through a lens, each worked out when it is first needed.
    """

    view: NodePool
    structure: int
    devices: int | None
    faces: dict[tuple[str, ...] | None, int] = field(default_factory=dict)

    def face(self, lens: AttributeReads, numbers: Numbers) -> int:
        """The number of all that claims with this lens see of the pool, what matters by comparison aside."""
        names = None if lens.everything else lens.values
        found = self.faces.get(names)
        if found is None:
            columns = [all_columns(self.view)] if names is None else [column(self.view, name) for name in names]
            found = self.faces[names] = numbers.of((self.structure, *columns)) if columns else self.structure
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """All that a decision on one node depends on, but for the claims and what is held of roaming pools.

    Attributes:
        grounds: the pools that it sees, in the order in which they are tried.
        used: what is held of each of them; None for roaming ones, which are used from everywhere.
        states: what has come over the devices of each of them; of roaming ones without what is held.
        state: number of all this, the pools themselves aside.
    """

    node: Node
    grounds: tuple[Ground, ...]
    used: tuple[PoolUsage | None, ...]
    states: tuple[tuple[Hashable, ...], ...]
    state: int

    def picture(self, lens: AttributeReads, numbers: Numbers) -> Hashable:
        """What claims with this lens see of the pools, whatever has come over them."""
        faces = [ground.face(lens, numbers) for ground in self.grounds]
        if not lens.matched:
            return faces[0] if len(faces) == 1 else tuple(faces)
        views = [ground.view for ground in self.grounds]
        return (*faces, *(pattern(views, attribute) for attribute in lens.matched))

    def settled(self, runs: Sequence[Sequence[int]]) -> Hashable:
        """The same for outlooks of one picture that differ only in which devices of a run are held."""
        return tuple(
            settled(states, lengths) if ground.devices is None else (ground.devices, states)
            for ground, states, lengths in zip(self.grounds, self.states, runs, strict=True)
        )


class Surveyor:
    """Makes outlooks, with everything that they share."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self.numbers = Numbers()
        # States come and go with pods; pools, and what shapes see of them, are as many as there are. A state that is
        # taken for a new one costs a comparison of states themselves.
        self._states = Numbers(_STATES)

    def look(self, snapshot: Snapshot, node: Node, known: Mapping[NodePool, Ground]) -> Outlook:
        """The outlook of a node in a snapshot.

        Args:
            snapshot: the cluster.
            node: the node, which need not be in there.
            known: grounds of views that were seen before.
        """
        views = snapshot.inventory.for_node(node, self._features)
        pools, roaming = snapshot.usage.pools, snapshot.inventory.roaming
        used = tuple([None if v.id in roaming else pools.get(v.id, NOTHING_USED) for v in views])
        grounds = tuple([known.get(v) or self._ground(v, roams=v.id in roaming) for v in views])
        rules = snapshot.taint_rules
        states = tuple(
            [circumstances(v, node, held or NOTHING_USED, rules) for v, held in zip(views, used, strict=True)]
        )
        shared = tuple([ground.devices for ground in grounds if ground.devices is not None])
        return Outlook(node, grounds, used, states, self._states.of((states, shared)))

    def _ground(self, view: NodePool, *, roams: bool) -> Ground:
        number = self.numbers.of
        devices = (*(c.device for c in view.candidates), *view.elsewhere) if roams else ()
        return Ground(view, number(structure(view)), number(tuple([d.id for d in devices])) if roams else None)
