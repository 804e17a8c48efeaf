"""The best of the nodes that fit, and the scores of nodes, from what filter has found; kept for prioritize and bind.

Filter names a few hundred of the best: to score thousands costs the scheduler more.

A call may have thousands of nodes, and there are few distinct verdicts. So a byte for each node is its mark, and bytes
are counted, translated and picked in C.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, repeat
from operator import attrgetter
from typing import Final

from allocator import Reason
from allocator.policies import MAX_SCORE, Merit, Policy, Scores
from allocator.tools import Recent
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.decisions.verdict import Reasons, Verdict, Verdicts

NOTHING: Final = -1


class Merits(Mapping[str, Merit]):
    """Node name to the merit of the node.

    Attributes:
        names: of the nodes.
        kinds: distinct merits; an entry that no node has may be anything.

    Args:
        codes: for each node, the index of its merit in `kinds`.
        scored: the scores of these merits, if they are known.
    """

    def __init__(
        self,
        names: Sequence[str] = (),
        kinds: Sequence[Merit] = (),
        codes: Sequence[int] = (),
        scored: "Scored | None" = None,
    ) -> None:
        self.kinds = kinds
        self.names = tuple(names)
        self._codes = codes
        self._scored = scored

    def codes_of(self, names: Sequence[str]) -> Sequence[int]:
        """The index of each node's merit in `kinds`; `NOTHING` for nodes without one."""
        if tuple(names) == self.names:  # prioritize usually asks about what filter has named, in that order
            return self._codes
        return list(map(self._by_name.get, names, repeat(NOTHING)))

    def best(self, policy: Policy, most: int) -> Sequence[str]:
        """The nodes that have the highest score; none if they are too many."""
        counts = Counter(self._codes)
        scores = self.scores(counts.keys(), policy)
        highest = max(scores.values(), default=0)
        top = {code for code in counts if scores[code] == highest}
        if sum(counts[code] for code in top) > most:
            return ()
        return [name for name, code in zip(self.names, self._codes, strict=True) if code in top]

    def without(self, names: Collection[str]) -> "Merits":
        """The merits of the other nodes."""
        kept = [(name, code) for name, code in zip(self.names, self._codes, strict=True) if name not in names]
        return Merits([name for name, _ in kept], self.kinds, [code for _, code in kept])

    def scores(self, codes: AbstractSet[int], policy: Policy) -> Mapping[int, int]:
        """The scores of some merits, by their index. Which merits there are decides, and prioritize asks about all."""
        known = self._scored
        if known is not None and known.by is policy.scores and known.scores.keys() == codes:
            return known.scores
        return policy.scores({code: self.kinds[code] for code in codes})

    def __getitem__(self, name: str) -> Merit:
        return self.kinds[self._by_name[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _by_name(self) -> Mapping[str, int]:
        return dict(zip(self.names, self._codes, strict=True))


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of some merits, by their index, and what has computed them."""

    by: Scores
    scores: Mapping[int, int]


_merit: Callable[[Verdict], Merit] = attrgetter("merit")
_reason: Callable[[Verdict], Reason] = attrgetter("reason")

_BYTES: Final = 256
_SEARCHED_BELOW: Final = 1 / 16
"""If a smaller share of the nodes is picked, find each one instead of scanning all: to find one takes as long as to
scan sixteen."""

_REFUSED: Final = 0
_MARKS: Final = range(MAX_SCORE + 2)
"""0 for rejected nodes; for others, 1 more than the score."""
_AT: Final = [bytes([mark == each for mark in range(_BYTES)]) for each in _MARKS]
"""By mark: turns marks into 1 for this one, and 0 for others."""
_FROM: Final = [bytes([mark >= each for mark in range(_BYTES)]) for each in range(len(_MARKS) + 1)]
"""By mark: turns marks into 1 for this one and for higher ones, and 0 for others."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Nodes with their verdicts and marks, in the order asked.

    Attributes:
        marks: a byte for each node: 0 if it is rejected, else 1 more than its score.
        scored: the scores of all nodes that fit.
    """

    names: Sequence[str]
    verdicts: Verdicts
    marks: bytes
    scored: Scored

    @classmethod
    def of(cls, names: Sequence[str], verdicts: Verdicts, policy: Policy) -> "Ranking":
        """A ranking by the policy's scores."""
        kinds, codes = verdicts.kinds, verdicts.codes
        if len(kinds) > _BYTES:
            distinct = set(codes)
            marks = _marks(kinds, distinct, policy)
            return cls(names, verdicts, bytes(map(marks.__getitem__, codes)), _scored(marks, distinct, policy))
        packed = bytes(codes)
        present = bytes([code for code in range(len(kinds)) if code in packed])
        known = {} if verdicts.marks is None else verdicts.marks
        marks = known.get(present, b"")
        if not marks:
            marks = known[present] = _marks(kinds, present, policy).ljust(_BYTES, b"\0")
        return cls(names, verdicts, packed.translate(marks), _scored(marks, present, policy))

    def refused(self) -> Reasons:
        """The reasons against the rejected nodes."""
        names, codes = self._picked(self.marks.translate(_AT[_REFUSED]))
        return Reasons(names, list(map(_reason, self.verdicts.kinds)), codes)

    def best(self, most: int | None = None) -> Merits:
        """The merits of the nodes that score highest.

        Of equal nodes the first ones are taken: the scheduler's order alternates between zones.

        Args:
            most: the most nodes to take; None: all that fit.
        """
        names, codes = self._picked(self.marks if most is None else self._highest(most))
        return Merits(names, list(map(_merit, self.verdicts.kinds)), codes, self.scored)

    def _picked(self, picked: bytes) -> tuple[Sequence[str], Sequence[int]]:
        """The picked nodes, and the numbers of their verdicts."""
        names, codes = self.names, self.verdicts.codes
        if len(picked) - picked.count(0) > len(picked) * _SEARCHED_BELOW:
            return tuple(compress(names, picked)), tuple(compress(codes, picked))
        places = list(_places(picked))
        return [names[place] for place in places], [codes[place] for place in places]

    def _highest(self, most: int) -> bytes:
        """Marks of the picked nodes; 0 for others."""
        room = most
        if len(self.marks) - self.marks.count(_REFUSED) <= room:
            return self.marks
        for mark in reversed(_MARKS[1:]):
            there = self.marks.count(mark)
            if there > room:
                break
            room -= there
        above = self.marks.translate(_FROM[mark + 1])
        if not room:
            return above
        level = self.marks.translate(_AT[mark])
        end = len(level) - len(level.split(b"\1", room)[room])
        return self.marks[:end].translate(_FROM[mark]) + above[end:]


def _places(picked: bytes) -> Iterator[int]:
    """The positions of picked nodes."""
    is_picked = picked.translate(b"\0".ljust(_BYTES, b"\1"))
    place = is_picked.find(1)
    while place >= 0:
        yield place
        place = is_picked.find(1, place + 1)


def _marks(kinds: Sequence[Verdict], present: Collection[int], policy: Policy) -> bytes:
    """The mark of each kind of verdict; meaningless for kinds that no node has."""
    merits = {code: merit for code in present if (merit := kinds[code].merit) is not None}
    scores = policy.scores(merits)
    return bytes([scores[code] + 1 if code in scores else _REFUSED for code in range(len(kinds))])


def _scored(marks: bytes, present: Collection[int], policy: Policy) -> Scored:
    """The scores in marks of kinds that some node has."""
    return Scored(policy.scores, {code: marks[code] - 1 for code in present if marks[code] != _REFUSED})


def score_nodes(names: Sequence[str], merits: Merits, policy: Policy) -> Sequence[int]:
    """A score, 0 to 10, for each node in the order asked. One without merit has 0, as all have for other pods."""
    if not merits:
        return [0] * len(names)
    codes = merits.codes_of(names)
    scores = merits.scores({*codes} - {NOTHING}, policy)
    return list(map(scores.get, codes, repeat(0)))


def score_by_cpu(pod: Pod, names: Sequence[str], snapshot: Snapshot, solver: Solver, decider: Decider) -> Sequence[int]:
    """A score for each node for a pod without devices, by what its CPU takes from pods with devices.

    Args:
        pod: asks for no devices.
        names: the nodes.
        snapshot: of the followed cluster.
        solver: its policy weighs what is left on a node.
        decider: remembers what is left.
    """
    decider.follow(snapshot)
    informed = solver.informed(pod, (), snapshot)
    lookup = decider.lookup((), names, snapshot, policy=informed.policy, weighing=informed.weighing(pod))
    verdicts = decider.evaluate(lookup, until=solver.until, solver=informed).verdicts
    merits = {code: merit for code in set(verdicts.codes) if (merit := verdicts.kinds[code].merit) is not None}
    return list(map(informed.policy.scores(merits).get, verdicts.codes, repeat(0)))


_EQUAL_BEFORE: Final = 16
"""After this number of pods in a row for which all nodes score equally, few pods are scored."""

_ONE_IN: Final = 32
"""Of so many pods one is scored then."""


class WorthOfCpuScores:
    """Whether it is worth scoring nodes for pods without devices.

    It is not where nodes have CPU in plenty: then such a pod takes nothing from pods with devices, and all nodes score
    equally. Scores for thousands of nodes take milliseconds.
    """

    def __init__(self) -> None:
        self._equal = 0
        self._passed = 0

    def is_due(self, pod: Pod, names: Collection[str]) -> bool:
        """Whether to score these nodes for a pod. Call this once for a pod."""
        if not pod.cpu or len(names) < 2:
            return False
        self._passed += 1
        return self._equal < _EQUAL_BEFORE or self._passed % _ONE_IN == 0

    def note(self, scores: Collection[int]) -> None:
        """Note the scores of all nodes for a pod."""
        self._equal = self._equal + 1 if len({*scores}) < 2 else 0


@dataclass(frozen=True, slots=True)
class Decision:
    """The pod as filter was given it, and the merits of its nodes.

    Only a proposal: the cluster may have changed since.
    """

    pod: Pod
    merits: Merits


class DecisionStore:
    """Filter's decisions on the pods filtered last, by the pod's uid.

    Args:
        size: the most pods to remember.
        scored: the most pods whose merits are remembered as well: prioritize comes right after filter, and there may be
            thousands of nodes.
    """

    def __init__(self, *, size: int = 1024, scored: int = 32) -> None:
        self._pods: Recent[Pod] = Recent(size)
        self._merits: Recent[Merits] = Recent(scored)

    def keep(self, decision: Decision) -> None:
        """Replace what is known of a pod."""
        uid = decision.pod.uid
        self._pods.keep(uid, decision.pod)
        if decision.merits:
            self._merits.keep(uid, decision.merits)
        else:
            self._merits.forget(uid)

    def of(self, uid: str) -> Decision | None:
        """What filter found for a pod; without merits, or None, if many pods were filtered after it."""
        pod = self._pods.find(uid)
        return None if pod is None else Decision(pod, self._merits.find(uid) or Merits())

    def drop(self, uid: str) -> None:
        """Forget a pod, which is bound or gone."""
        self._pods.forget(uid)
        self._merits.forget(uid)
