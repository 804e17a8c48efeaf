"""Verdicts by node name, kept up with a cluster: where they are known, an answer is one look-up a node."""

from collections.abc import Callable, Sequence
from operator import itemgetter

from extender.deciding.terrain import Terrain
from extender.deciding.verdict import NOT_KNOWN, Verdict, Verdicts


class Page(dict[str, int]):
    """What becomes of nodes, under everything that does not change with the terrain; for one thread.

    A look-up that fails is Python's to call `__missing__` for. All others are done in C, which is what makes the
    difference with thousands of names. What is looked up are the numbers of kinds of verdicts.
    """

    def __init__(self) -> None:
        super().__init__()
        self._version = -1
        self._numbers: dict[Verdict, int] = {}
        self._find: Callable[[str], Verdict] | None = None

    def look(self, names: Sequence[str], terrain: Terrain, find: Callable[[str], Verdict]) -> Verdicts:
        """The verdicts on nodes.

        Args:
            names: the nodes.
            terrain: of the cluster that is followed; later than the last time, or the same.
            find: finds out what is not known; what it raises is raised.
        """
        self._catch_up(terrain)
        self._find = find
        try:
            codes = itemgetter(*names)(self) if len(names) > 1 else [self[name] for name in names]
        finally:
            self._find = None  # it knows the whole cluster, as it is now
        return Verdicts(tuple(self._numbers), codes)

    def __missing__(self, name: str) -> int:
        if self._find is None:
            raise KeyError(name)
        found = self._find(name)
        number = self._numbers.setdefault(found, len(self._numbers))
        if found.lasting and found is not NOT_KNOWN:
            self[name] = number
        return number

    def _catch_up(self, terrain: Terrain) -> None:
        changed = terrain.changed_since(self._version)
        if changed is None:
            self.clear()
            self._numbers = {}
        else:
            for name in changed:
                self.pop(name, None)
        self._version = terrain.snapshot.version
