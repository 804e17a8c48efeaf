"""Reasons by node: there may be thousands of nodes, and few distinct reasons. Words are made once for each of these."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from allocator import Reason
from allocator.reason import request_noun


class Reasons(Mapping[str, Reason]):
    """Node name to the reason against the node.

    Args:
        names: of the nodes.
        kinds: reasons; one that no node has may be anything.
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


NONE: Final = Reasons()
"""Against no node."""
