"""Verdicts: whether some claims can be allocated on a node, and the reason against each node; and why a pod waits."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final, overload

from allocator import Reason
from allocator.policies import Merit
from allocator.reason import Cause, request_noun

UNKNOWN_NODE: Final = Reason(Cause("unknown-node", "node not yet known"))
OUT_OF_TIME: Final = Reason(Cause("out-of-time", "not looked at in time"))


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Whether some claims can be allocated on a node.

    Attributes:
        merit: what speaks for the node; None if the claims can't be allocated there.
        reason: why they can't; None if they can.
        lasting: whether the same question would get the same answer. Not if the search was stopped.
    """

    merit: Merit | None = None
    reason: Reason | None = None
    lasting: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts(Sequence[Verdict]):
    """The verdicts on many nodes. There are few distinct ones, and each node has the number of one.

    Attributes:
        kinds: distinct verdicts; no node need have them.
        codes: for each node, the index of its verdict in `kinds`.
        marks: of verdicts that are kept for pods of one policy, the marks of the kinds (`extender.framework.ranking`),
            by the kinds that nodes have; None: not kept.
    """

    kinds: Sequence[Verdict]
    codes: Sequence[int]
    marks: dict[bytes, bytes] | None = None

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> "Verdicts":
        """One verdict for each node."""
        found = tuple(verdicts)
        objects = dict(
            zip(map(id, found), found, strict=True)
        )  # far fewer than nodes, and a hash is computed in Python
        kinds = tuple(dict.fromkeys(objects.values()))
        numbers = {kind: number for number, kind in enumerate(kinds)}
        codes = {key: numbers[each] for key, each in objects.items()}
        return cls(kinds, list(map(codes.__getitem__, map(id, found))))

    def places(self, wanted: Verdict) -> Sequence[int]:
        """The positions of the nodes that have a verdict."""
        if wanted not in self.kinds:
            return ()
        number = self.kinds.index(wanted)
        return [place for place, code in enumerate(self.codes) if code == number]

    def with_verdicts(self, places: Sequence[int], verdicts: Sequence[Verdict]) -> "Verdicts":
        """The verdicts with others on the nodes at some positions."""
        if len(places) == len(self.codes):
            return Verdicts.of(verdicts)
        kinds, codes = tuple(dict.fromkeys((*self.kinds, *verdicts))), list(self.codes)
        for place, code in zip(places, _codes(verdicts, kinds), strict=True):
            codes[place] = code
        return Verdicts(kinds, codes)

    @property
    def different(self) -> Sequence[Verdict]:
        """Each verdict that some node has, once."""
        return [self.kinds[code] for code in sorted({*self.codes})]

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[Verdict]:
        return map(self.kinds.__getitem__, self.codes)

    def __contains__(self, wanted: object) -> bool:
        return wanted in self.kinds and self.kinds.index(wanted) in self.codes

    @overload
    def __getitem__(self, index: int) -> Verdict: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Verdict]: ...
    def __getitem__(self, index: int | slice) -> Verdict | Sequence[Verdict]:
        if isinstance(index, slice):
            return Verdicts(self.kinds, self.codes[index])
        return self.kinds[self.codes[index]]


def _codes(verdicts: Iterable[Verdict], kinds: Iterable[Verdict]) -> list[int]:
    """The index of each verdict in the kinds."""
    return list(map({kind: number for number, kind in enumerate(kinds)}.__getitem__, verdicts))


NOTHING_NEEDED: Final = Verdict(Merit())
NOT_KNOWN: Final = Verdict(reason=UNKNOWN_NODE)
TOO_LATE: Final = Verdict(reason=OUT_OF_TIME, lasting=False)
UNDECIDED: Final = Verdict(lasting=False)
"""The verdict in a lookup for a node that has not been evaluated yet."""


class Reasons(Mapping[str, Reason]):
    """Maps the name of each node to the reason against the node.

    There may be thousands of nodes, and few distinct reasons. Words are made once for each of these.

    Args:
        names: of the nodes.
        kinds: reasons; no node need have them.
        codes: for each node, the index of its reason in `kinds`.
    """

    def __init__(self, names: Sequence[str] = (), kinds: Sequence[Reason] = (), codes: Sequence[int] = ()) -> None:
        self._names = names
        self._kinds = kinds
        self._codes = codes

    @classmethod
    def alike(cls, names: Sequence[str], reason: Reason) -> "Reasons":
        """One reason against all of the nodes."""
        return cls(names, (reason,), bytes(len(names)))

    @classmethod
    def of(cls, reasons: Mapping[str, Reason]) -> "Reasons":
        """The reason against each node."""
        kinds = {id(each): each for each in reasons.values()}
        places = {key: place for place, key in enumerate(kinds)}
        return cls(tuple(reasons), tuple(kinds.values()), [places[id(each)] for each in reasons.values()])

    @property
    def distinct(self) -> Sequence[Reason]:
        """The reasons, in the order of the nodes. Two of them may be equal."""
        return [self._kinds[code] for code in self._numbers]

    def beside(self, others: "Reasons") -> "Reasons":
        """The reasons against these nodes, then those against others."""
        if not self or not others:
            return self or others
        codes = [*self._codes, *(code + len(self._kinds) for code in others._codes)]
        return Reasons((*self._names, *others._names), (*self._kinds, *others._kinds), codes)

    def without(self, name: str) -> "Reasons":
        """The reasons against the other nodes."""
        kept = [(each, code) for each, code in zip(self._names, self._codes, strict=True) if each != name]
        return Reasons([each for each, _ in kept], self._kinds, [code for _, code in kept])

    def in_words(self, noun: Callable[[str], str] = request_noun) -> dict[str, str]:
        """The reasons for people; ``noun`` as in `Reason.in_words`."""
        if not self._names:
            return {}
        return dict(zip(self._names, map(self._words(noun).__getitem__, self._codes), strict=True))

    def counts(self, noun: Callable[[str], str] = request_noun) -> Counter[str]:
        """The number of nodes by reason, in words and in the order of the nodes; ``noun`` as in `Reason.in_words`."""
        if not self._names:
            return Counter()
        words, found = self._words(noun), Counter[str]()
        for code, nodes in self._numbers.items():
            found[words[code]] += nodes
        return found

    def _words(self, noun: Callable[[str], str]) -> Mapping[int, str]:
        return {code: self._kinds[code].in_words(noun) for code in self._numbers}

    def __getitem__(self, name: str) -> Reason:
        return self._kinds[self._by_name[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @cached_property
    def _numbers(self) -> Mapping[int, int]:
        """The number of nodes of each kind, in the order of the nodes."""
        return Counter(self._codes)

    @cached_property
    def _by_name(self) -> Mapping[str, int]:
        return dict(zip(self._names, self._codes, strict=True))


NO_REASONS: Final = Reasons()
"""The reasons against no node."""


class PendingReason(Enum):
    """The thing that a pending pod waits for."""

    NO_ATTEMPT = "no_attempt"
    """A scheduling gate keeps it from its scheduler, or its scheduler does not call the extender."""
    NOT_ASKED = "not_asked"
    """No scheduler has asked this replica about it."""
    CLAIMS = "claims"
    """A claim of the pod cannot be used on any node: it does not exist, is invalid, or is not ready."""
    GANG = "gang"
    """Pods of its gang are missing, or the devices for all of them."""
    QUOTA = "quota"
    """A DeviceQuota of its namespace allows no more; in a simulation, also a ResourceQuota."""
    DEVICES = "devices"
    """No node has the devices."""
    TERMINATING = "terminating"
    """The pod fits once terminating pods are gone."""
    SEARCH = "search"
    """No node was found, and a limit has stopped a search."""
    FILTER_ERROR = "filter_error"
    """Filter has ended with an error."""
    FITS = "fits"
    """Its devices fit on a node; the rest is up to its scheduler."""
    BIND_ERROR = "bind_error"
    """Bind has ended with an error, or waits for the devices to be ready."""
