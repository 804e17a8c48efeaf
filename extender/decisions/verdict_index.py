"""Verdicts by node name, kept up with a cluster: where they are known, an answer is one look-up a node."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final

from extender.decisions.node_index import NodeIndex
from extender.decisions.verdict import NOT_KNOWN, Verdict, Verdicts

_SHARE: Final = 8
"""When one name of so many lies somewhere else, all are laid out anew."""


class VerdictIndex(dict[str, int]):
    """What becomes of nodes, under everything that does not change with the node index; for one thread.

    A look-up that fails is Python's to call `__missing__` for. All others are done in C, which is what makes the
    difference with thousands of names. What is looked up are the numbers of kinds of verdicts.
    """

    def __init__(self) -> None:
        super().__init__()
        self._version = -1
        self._numbers: dict[Verdict, int] = {}
        self._find: Callable[[str], Verdict] | None = None
        self._added = 0  # verdicts, since the names were laid out

    def look(self, names: Sequence[str], node_index: NodeIndex, find: Callable[[str], Verdict]) -> Verdicts:
        """The verdicts on nodes.

        Args:
            names: the nodes.
            node_index: of the cluster that is followed; not older than the one before.
            find: finds out what is not known; what it raises is raised.
        """
        self._catch_up(node_index)
        self._find = find
        try:
            codes = itemgetter(*names)(self) if len(names) > 1 else [self[name] for name in names]
        finally:
            self._find = None  # it knows the whole cluster, as it is now
        verdicts = Verdicts(tuple(self._numbers), codes)
        if self._added * _SHARE > len(self):
            self._lay_out()
        return verdicts

    def __missing__(self, name: str) -> int:
        if self._find is None:
            raise KeyError(name)
        found = self._find(name)
        number = self._numbers.setdefault(found, len(self._numbers))
        if found is not NOT_KNOWN:
            self._added += 1
            if found.lasting:
                self[name] = number
        return number

    def _lay_out(self) -> None:
        """Copy the names, so that they lie side by side in memory, and number only kinds that a node still has.

        Names come from requests, each to where there was room. To compare one that is asked for with ours, which the
        processor has not seen for a while, takes longer than all the rest of a look-up; of neighbours it sees several
        at once.
        """
        kinds = tuple(self._numbers)
        known = [(name.encode().decode(), kinds[code]) for name, code in self.items()]
        self.clear()
        self._numbers = {}
        for name, kind in known:
            self[name] = self._numbers.setdefault(kind, len(self._numbers))
        self._added = 0

    def _catch_up(self, node_index: NodeIndex) -> None:
        changed = node_index.changed_since(self._version)
        if changed is None:
            self.clear()
            self._numbers = {}
        else:
            for name in changed:
                self.pop(name, None)
        self._version = node_index.snapshot.version
