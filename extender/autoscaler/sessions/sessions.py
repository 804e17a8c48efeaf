"""Sessions: a few worlds that are remembered from call to call.

Nobody ends a session: a "stop" could get lost. Over a limit, the owner that has most makes room: its session that was
not used for longest goes. So no owner ends a session of another that has less. No session lives for ever. What is not
kept is told by an error, and the autoscaler starts again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from extender.autoscaler.scale_up.plan import NodeGroup, ScaleUpPlan
from extender.autoscaler.simulated_cluster import World
from extender.cluster.snapshot import Snapshot
from extender.tools.faults import RefusedError

OBJECT_BYTES: Final = 4_000
"""What an object of the cluster takes, about; an old one that only a session still knows is on its account."""


class UnknownSessionError(RefusedError):
    """There is no session of this id, or no longer."""

    code: ClassVar[str] = "UnknownSession"


class SessionTooLargeError(RefusedError):
    """A session takes more than all sessions may."""

    code: ClassVar[str] = "SessionTooLarge"


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How much is kept: sessions, seconds since the start of one, bytes of all of them together (about)."""

    count: int = 8
    seconds: float = 600.0
    size: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Planned:
    """The latest plan that was made in a session. Nothing of it is booked."""

    plan: ScaleUpPlan
    groups: Sequence[NodeGroup]

    @property
    def weight(self) -> int:
        """An estimate of its bytes."""
        pods = sum(len(node) for group in self.plan.groups for node in group.nodes) + len(self.plan.failed)
        return OBJECT_BYTES * pods


@dataclass(slots=True, eq=False)
class Session:
    """One autoscaler's cycle.

    Attributes:
        world: what has happened in it so far.
        began: the time of the start.
        caller: who started it, as far as that is known, for people.
        owner: who started it, by what it cannot choose: its user, or its address.
        planned: the latest plan; None if there is none.
        turn: held during a call, so that calls of one session follow each other.
    """

    id: str
    world: World
    began: float
    caller: str = ""
    owner: str = ""
    planned: Planned | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def weight(self, now: Snapshot) -> int:
        """An estimate of the bytes that only this session keeps: its own, and objects that have changed meanwhile."""
        start = self.world.supply.snapshot
        objects = len(start.nodes) + len(start.inventory.slices) + len(start.claims) + len(start.pods)
        planned = 0 if self.planned is None else self.planned.weight
        return self.world.weight + planned + OBJECT_BYTES * min(now.version - start.version, objects)


class Sessions:
    """The sessions that are kept, the least recently used one first; each owner has a share.

    Args:
        clock: seconds, from any point.
        new_id: makes an id that can't be guessed.

    Attributes:
        changes: counts the changes of sessions; their ends by age do not count.
    """

    def __init__(self, limits: SessionLimits, *, clock: Callable[[], float], new_id: Callable[[], str]) -> None:
        self._limits = limits
        self._clock = clock
        self._new_id = new_id
        self._kept: OrderedDict[str, Session] = OrderedDict()
        self.changes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def listed(self) -> tuple[tuple[Session, float], ...]:
        """The sessions that are kept, the newest first, each with its age in seconds. None of them counts as used."""
        self._drop_expired()
        now = self._clock()
        found = sorted(self._kept.values(), key=lambda each: each.began, reverse=True)
        return tuple((each, now - each.began) for each in found)

    def start(self, world: World, caller: str = "", owner: str = "") -> Session:
        """A new session that begins with this world, as it is in the cluster now.

        Args:
            world: what it begins with.
            caller: who starts it, for people.
            owner: who starts it: all sessions of one owner have one share of what is kept.
        """
        self._drop_expired()
        self.changes += 1
        session = Session(self._new_id(), world, self._clock(), caller, owner)
        self._kept[session.id] = session
        while len(self._kept) > self._limits.count:
            self._drop_of(self._greatest(lambda _: 1))
        self._fit(world.snapshot)
        return session

    def find(self, session_id: str) -> Session:
        """A session that is kept; it counts as used.

        Raises:
            UnknownSessionError: it is not, and why that may be.
        """
        self._drop_expired()
        session = self._kept.get(session_id)
        if session is None:
            raise UnknownSessionError(
                f"no session {_shown(session_id)}: it has expired or made room for others, or the service was started "
                "again since; start another one"
            )
        self._kept.move_to_end(session_id)
        return session

    def keep(self, session: Session, world: World, now: Snapshot) -> None:
        """What a session has come to. If need be, the owner that has most makes room.

        Args:
            session: one that was found.
            world: what it is now.
            now: the cluster as it is now.

        Raises:
            SessionTooLargeError: it takes more than all sessions may, or more than its owner's share while others need
                theirs. It is dropped.
        """
        session.world = world
        self.changes += 1
        was_kept = session.id in self._kept
        self._fit(now)
        is_over = session.weight(now) > self._limits.size
        share = "" if is_over else "its share of "
        if is_over or (was_kept and session.id not in self._kept):
            self._kept.pop(session.id, None)
            raise SessionTooLargeError(
                f"the session takes more than {share}the limit of {self._limits.size} bytes "
                "(autoscaler.sessionBytes) and was dropped; start another one and ask it for less"
            )

    def note(self, session_id: str, planned: Planned, now: Snapshot) -> None:
        """Remember the latest plan of a session, unless it is too large, or the session has ended while it was made."""
        session = self._kept.get(session_id)
        if session is None:
            return
        session.planned = planned
        self.changes += 1
        if self.weight(now) > self._limits.size:
            session.planned = None

    def weight(self, now: Snapshot) -> int:
        """The bytes of all sessions, about."""
        return sum(session.weight(now) for session in self._kept.values())

    def _fit(self, now: Snapshot) -> None:
        """Drop sessions of the owner that has most, but for the last one, until the rest fit."""
        while len(self._kept) > 1 and self.weight(now) > self._limits.size:
            self._drop_of(self._greatest(lambda session: session.weight(now)))

    def _greatest(self, weigh: Callable[[Session], int]) -> str:
        """The owner whose sessions weigh most; of equal ones, the one that has used none for longest."""
        weights: dict[str, int] = {}
        for session in self._kept.values():
            weights[session.owner] = weights.get(session.owner, 0) + weigh(session)
        latest = {session.owner: place for place, session in enumerate(self._kept.values())}
        return max(weights, key=lambda owner: (weights[owner], -latest[owner]))

    def _drop_of(self, owner: str) -> None:
        """Drop the least recently used session of an owner."""
        del self._kept[next(session.id for session in self._kept.values() if session.owner == owner)]

    def _drop_expired(self) -> None:
        oldest = self._clock() - self._limits.seconds
        for session in [each for each in self._kept.values() if each.began < oldest]:
            del self._kept[session.id]


def _shown(session_id: str) -> str:
    """An id as it was sent, cut where it is long."""
    return repr(session_id if len(session_id) <= 64 else f"{session_id[:64]}...")
