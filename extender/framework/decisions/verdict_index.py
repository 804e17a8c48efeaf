"""Verdicts by node name, kept up with the cluster that is followed: an answer takes one dict access for each node."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from threading import Lock
from typing import Final

from extender.framework.decisions.node_index import NodeIndex
from extender.framework.decisions.verdict import NOT_KNOWN, UNDECIDED, Verdict, Verdicts

_RENEWED_AFTER: Final = 1 / 8
"""Share of the names that may have been added before all names are copied."""


class VerdictIndex(dict[str, int]):
    """Node name to the number of its verdict, for one signature and one state of the roaming pools.

    Python calls `__missing__` for a name that is not there. Every other access is done in C, which makes the difference
    with thousands of names.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._version = -1
        self._numbers: dict[Verdict, int] = {}
        self._find: Callable[[str], Verdict] | None = None
        self._added = 0  # verdicts, since the names were copied

    def look(self, names: Sequence[str], node_index: NodeIndex, find: Callable[[str], Verdict]) -> Verdicts | None:
        """The verdicts on nodes; None if another thread is using the index, or has taken it to a later snapshot.

        Args:
            names: the nodes.
            node_index: of the cluster that is followed.
            find: finds the verdict of a name that is not in the index.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if node_index.snapshot.version < self._version:
                return None
            self._catch_up(node_index)
            self._find = find
            codes = itemgetter(*names)(self) if len(names) > 1 else [self[name] for name in names]
            verdicts = Verdicts(tuple(self._numbers), codes)
            if self._added > len(self) * _RENEWED_AFTER:
                self._copy_names()
            return verdicts
        finally:
            self._find = None  # it refers to the whole cluster as it is now
            self._lock.release()

    def __missing__(self, name: str) -> int:
        if self._find is None:
            raise KeyError(name)
        found = self._find(name)
        number = self._numbers.setdefault(found, len(self._numbers))
        if found not in (NOT_KNOWN, UNDECIDED):
            self._added += 1
            if found.lasting:
                self[name] = number
        return number

    def _copy_names(self) -> None:
        """Copy the names, so that they are adjacent in memory, and number only verdicts that a node still has.

        Names come from requests and lie wherever there was room. Comparing a requested name with one of ours that is
        not in the processor's cache takes longer than the rest of the access; adjacent names share cache lines.
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
