"""Nodes that filter passes over while another node suits, because a bind there would fail as the last one did.

A pool may be so large, and change so often, that no search in it ends before its next change. A bind could not decide
on its devices in time, or filter found them hard to search: the next bind would end in the same way, and the pods of
all tenants wait while filter searches.

If a node has very many devices, and some of them have just changed, it is passed over before anything was searched
there: each namespace would pay for a search, and for a bind that fails, before it knows.

dra-extender does not follow ResourceQuotas: the API server compares the special claim of a pod when a bind makes it.
What the claim asks for may differ from node to node, so another node may do where one was refused.
"""

import math
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from allocator import Clock, Reason
from allocator.pools import Inventory, Pool
from allocator.reason import Cause
from allocator.tools import Recent
from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import Topic
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, View, nodes_of
from extender.framework.cycle import Cycle
from extender.tools.fairness import FairMemory

LATE: Final = Reason(Cause("late", "its devices change faster than they can be searched"))
RESTLESS: Final = Reason(Cause("restless", "it has very many devices, and they have changed a moment ago"))
OVER_QUOTA: Final = Reason(Cause("quota", "a ResourceQuota has no room for the claim that the pod would get there"))
"""Why filter passes over a node while another node suits."""

QUIET_SECONDS: Final = 5.0
"""A node whose pools have not changed for this long is searched in time."""

MANY_DEVICES: Final = 4096
"""A node with more devices in pools of its own is passed over until it is quiet. To search so many of them takes about
`LATE_SECONDS`."""

LATE_SECONDS: Final = 0.05
"""A node whose search takes longer in filter is passed over, if its pools change."""

FIRST_PAUSE: Final = 10.0
MOST_PAUSE: Final = 300.0
"""Seconds for which a node is passed over; twice as long after each failure or refusal."""

MOST_OF_NAMESPACE: Final = 64
MOST_NAMESPACES: Final = 256
"""What is remembered: this number of failures for each of the namespaces in which a bind was late last."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """Binds of equal pods that were late on a node, or searches that took long there.

    Attributes:
        pause: seconds for which the node is passed over.
        until: when the pause ends.
        pools: the node's pools, when they were looked at last.
        since: when these pools were first seen; long ago, if the last search of them has ended.
    """

    pause: float
    until: float
    pools: tuple["weakref.ref[Pool]", ...]
    since: float


_MOST_BEHIND: Final = 1000
"""Changes of other things after which a view of pools is that of the newest version without reading them."""


@dataclass(frozen=True, slots=True)
class _Large:
    """A node with many devices.

    Attributes:
        pools: the node's pools, when they were looked at last.
        since: when these pools were first seen; long ago, if they were there when the first look was taken.
    """

    pools: tuple["weakref.ref[Pool]", ...]
    since: float


class RestlessNodes(View[Mapping[str, _Large]]):
    """The nodes with very many devices that have changed a moment ago.

    Args:
        state: the cluster.
        clock: seconds, from any point.
    """

    topics = frozenset({Topic.POOL})
    bound = f"the nodes with more than {MANY_DEVICES:,} devices"

    def __init__(self, state: ClusterState, clock: Clock) -> None:
        super().__init__(state)
        self._state, self._clock = state, clock
        self._seen: Inventory | None = None

    def among(self, names: Collection[str]) -> frozenset[str]:
        """Those of the nodes that have changed within `QUIET_SECONDS`."""
        snapshot = self._state.snapshot
        known = self._known
        if snapshot.inventory is not self._seen:
            self.at(snapshot)
            self._seen, known = snapshot.inventory, self._known
        elif known is not None and snapshot.version > known.version + _MOST_BEHIND:
            self._known = known._replace(version=snapshot.version)
        large = {} if known is None else known.value
        if not large:
            return frozenset()
        quiet = self._clock() - QUIET_SECONDS
        return frozenset(name for name, each in large.items() if each.since > quiet).intersection(names)

    def build(self, snapshot: Snapshot) -> Mapping[str, _Large]:
        """Look at all nodes with pools of their own."""
        known = {} if self._known is None else self._known.value
        return self._looked_at(snapshot.inventory.local, known, snapshot, -math.inf)

    def apply(self, value: Mapping[str, _Large], reach: Reach, snapshot: Snapshot) -> Mapping[str, _Large]:
        """Look at the nodes whose pools have changed."""
        names = {name for pool in reach.keys(Topic.POOL) or () for name in nodes_of(pool, snapshot)}
        return self._looked_at({*value, *names}, value, snapshot, self._clock())

    def _looked_at(
        self, names: Iterable[str], before: Mapping[str, _Large], snapshot: Snapshot, since_new: float
    ) -> Mapping[str, _Large]:
        found = {}
        for name in names:
            if snapshot.inventory.local_devices(name) > MANY_DEVICES:
                known, pools = before.get(name), _pools(snapshot, name)
                if known is not None and known.pools == pools:
                    found[name] = known
                else:
                    found[name] = _Large(pools, since_new if known is None else self._clock())
        return found


class LateNodes:
    """The nodes that filter passes over, for each namespace and each signature of claims; and those for all pods.

    A namespace learns from its own pods alone, and has its own room.

    Args:
        clock: seconds, from any point.
        restless: knows the nodes that are passed over for all pods; None: there are none.
    """

    def __init__(self, clock: Clock, restless: RestlessNodes | None = None) -> None:
        self._clock, self._restless = clock, restless
        self._failures: Recent[Mapping[tuple[int, str], _Failure]] = Recent(MOST_NAMESPACES)
        self._over_quota: OverQuotaNodes | None = None
        """None: no quota has refused a claim."""

    def note(self, cycle: Cycle, node: NodeObject) -> None:
        """A bind of the pod was late on the node."""
        self._note(cycle, node, self._clock())

    def note_over_quota(self, pod: Pod, node: str) -> None:
        """A ResourceQuota has refused the claim with which the pod was to be bound to the node."""
        if self._over_quota is None:
            self._over_quota = OverQuotaNodes(self._clock)
        self._over_quota.note(pod, node)

    def note_hard(self, cycle: Cycle, node: NodeObject, seconds: float) -> None:
        """A search for the pod took so long on the node. What it found holds until the node's pools change."""
        if seconds > LATE_SECONDS:
            self._note(cycle, node, -math.inf)

    def _note(self, cycle: Cycle, node: NodeObject, since: float) -> None:
        now, key, known = self._clock(), (_signature(cycle), node.name), self._failures_in_namespace(cycle)
        before = known.get(key)
        pause = FIRST_PAUSE if before is None else min(2 * before.pause, MOST_PAUSE)
        others = [(other, failure) for other, failure in known.items() if other != key]
        kept = dict(others[len(others) - MOST_OF_NAMESPACE + 1 if len(others) >= MOST_OF_NAMESPACE else 0 :])
        kept[key] = _Failure(pause, now + pause, _pools(cycle.snapshot, node.name), since)
        self._failures.keep(cycle.pod.namespace, kept)

    def among(self, cycle: Cycle, names: Sequence[str]) -> Mapping[str, Reason]:
        """The nodes that are passed over for the pod now, each with the reason against it."""
        late = dict.fromkeys(self._late(cycle, names), LATE)
        if self._restless is not None and (restless := self._restless.among(names)):
            late |= dict.fromkeys(restless, RESTLESS)
        if self._over_quota is None:
            return late
        return {**late, **dict.fromkeys(self._over_quota.among(cycle.pod, names), OVER_QUOTA)}

    def _late(self, cycle: Cycle, names: Sequence[str]) -> frozenset[str]:
        known = self._failures_in_namespace(cycle)
        if not known:
            return frozenset()
        signature = _signature(cycle)
        late = {
            name for (of, name), failure in known.items() if of == signature and self._is_late(cycle, name, failure)
        }
        return frozenset(late.intersection(names)) if late else frozenset()

    def of_namespace(self, cycle: Cycle) -> frozenset[str]:
        """The nodes on which something took long for any pod of the namespace, and is not yet to be tried again."""
        now = self._clock()
        return frozenset(
            name for (_, name), failure in self._failures_in_namespace(cycle).items() if now < failure.until
        )

    def _failures_in_namespace(self, cycle: Cycle) -> Mapping[tuple[int, str], _Failure]:
        return self._failures.find(cycle.pod.namespace) or {}

    def _is_late(self, cycle: Cycle, name: str, failure: _Failure) -> bool:
        now = self._clock()
        if now >= failure.until:
            return False
        pools = _pools(cycle.snapshot, name)
        if pools == failure.pools:
            return now - failure.since < QUIET_SECONDS
        changed = {
            **self._failures_in_namespace(cycle),
            (_signature(cycle), name): replace(failure, pools=pools, since=now),
        }
        self._failures.keep(cycle.pod.namespace, changed)
        return True


def _signature(cycle: Cycle) -> int:
    """Equal for pods whose claims ask for the same. A number, because the specs of claims may be long."""
    return hash(tuple([each.claim.spec.asked for each in cycle.claims.pending]))


def _pools(snapshot: Snapshot, node: str) -> tuple["weakref.ref[Pool]", ...]:
    """The pools of the node. Each change of a pool makes another object; references to the same object are equal."""
    pools = snapshot.inventory.pools
    return tuple([weakref.ref(pools[pool]) for pool in snapshot.inventory.local.get(node, ())])


MOST_PODS: Final = 1024
"""Pods that are remembered, in shares by namespace."""

MOST_NODES: Final = 64
"""Nodes that are remembered for a pod, those of the latest binds."""


@dataclass(frozen=True, slots=True)
class _Pause:
    """A pause of a node: the seconds for which the node is passed over, and until when."""

    seconds: float
    until: float


class OverQuotaNodes:
    """The nodes where a ResourceQuota leaves no room for the claim that a pod would get there, for each pod.

    Args:
        clock: seconds, from any point.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pods = FairMemory[Mapping[str, _Pause]](MOST_PODS)

    def note(self, pod: Pod, node: str) -> None:
        """A quota has refused the claim with which the pod was to be bound to a node."""
        known = dict(self._pods.get(pod.uid) or {})
        before = known.pop(node, None)
        seconds = FIRST_PAUSE if before is None else min(2 * before.seconds, MOST_PAUSE)
        known[node] = _Pause(seconds, self._clock() + seconds)
        if len(known) > MOST_NODES:
            del known[next(iter(known))]
        self._pods.keep(pod.namespace, pod.uid, known)

    def among(self, pod: Pod, names: Collection[str]) -> frozenset[str]:
        """The nodes that are passed over for the pod now."""
        known = self._pods.get(pod.uid)
        if known is None:
            return frozenset()
        now = self._clock()
        return frozenset({name for name, pause in known.items() if now < pause.until}.intersection(names))
