"""Pods that may not evict others yet because of what pods hold, as when they are over their quota.

When their quota has room, requeue wakes those that fit. Others need evictions, so their scheduler has to ask again.
"""

from typing import Final

from allocator.tools import Recent
from extender.cluster.cluster_state import ClusterState
from extender.cluster.snapshot import Snapshot
from extender.framework.plugin import Plugins
from extender.framework.queueing_hints import queueing_hint

_MOST: Final = 10_000


class HeldUp:
    """Remembers the namespaces of such pods until something changes that may help them.

    Args:
        state: the cluster.
        plugins: those that may have refused the pods.
    """

    def __init__(self, state: ClusterState, plugins: Plugins) -> None:
        self._state = state
        self._plugins = plugins
        self._seen = state.snapshot
        self._namespaces: Recent[bool] = Recent(_MOST)
        """Whether something has changed already, by namespace."""

    def note(self, namespace: str, snapshot: Snapshot) -> None:
        """A pod of a namespace was refused in a snapshot."""
        self._namespaces.keep(namespace, snapshot.version < self._seen.version)

    def relieved(self) -> set[str]:
        """The namespaces in which pods may be refused no more; they are forgotten."""
        before, snapshot = self._seen, self._state.snapshot
        self._seen = snapshot
        known = {str(name): has_changed for name, has_changed in self._namespaces.items()}
        if not known:
            return set()
        found = {name for name, has_changed in known.items() if has_changed}
        if before is not snapshot:
            news = queueing_hint(self._state.since(before.version), before, snapshot, self._plugins)
            found |= known.keys() if news.everywhere else known.keys() & news.namespaces
        for name in found:
            self._namespaces.forget(name)
        return found
