"""Preempt: which pods to evict, so that the pod fits after the evictions.

The scheduler has chosen victims by what it knows, which is not devices. Nodes where the pod's claims would not fit even
without any pod of lower priority are dropped; where they would fit, pods whose devices are needed join the victims.
The reply never holds a node without victims: that would fail the whole preemption in the scheduler.
"""

from collections.abc import Mapping
from contextlib import suppress

from allocator import InvalidClaimError, SelectorError
from extender.cluster.consumers import after_departures
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import is_feasible, open_cycle
from extender.framework.decisions.solver import Solver
from extender.framework.held_devices import held_for_nominated
from extender.framework.plugin import Plugin
from extender.framework.pods.claims import Blocked
from extender.framework.victims import Victims
from extender.plugins.preemption.evictions import Evictions, violations
from extender.tools.smallest_set import Members


class PreemptionPlugin(Plugin):
    """Chooses victims for a pod that lacks devices. It refuses no pod."""

    name = "preemption"

    def post_filter(
        self, pod: Pod, victims: Mapping[str, Victims], snapshot: Snapshot, solver: Solver
    ) -> Mapping[str, Victims]:
        """Evict more pods where devices are missing, and nobody where no eviction frees them (`choose_victims`)."""
        return choose_victims(pod, victims, snapshot, solver)


def choose_victims(
    pod: Pod,
    victims: Mapping[str, Victims],
    snapshot: Snapshot,
    solver: Solver,
) -> Mapping[str, Victims]:
    """The victims per node that make room for the pod's devices, too; nodes that can't be made to fit are left out.

    Empty while the pod only has to wait for devices on the node that it is nominated for: that keeps the nomination.

    Args:
        pod: for whom there is no room.
        victims: whom the scheduler would evict.
        snapshot: the cluster.
        solver: the allocator, for as long as the call has time. Nodes not looked at by then are left out; on others,
            the victims are as few as are known by then.

    Raises:
        TimeoutError: time was up before it was known whether the pod only has to wait.
    """
    if not pod.needs_devices:
        return victims
    if solver.plugins.pre_enqueue(pod, snapshot):
        return {}
    cycle = open_cycle(pod, snapshot, solver)
    if not isinstance(cycle, Blocked) and cycle.claims.is_empty:
        return victims
    world = held_for_nominated(pod, snapshot, solver)
    try:
        if _only_waits(pod, world, solver):
            return {}
        return _chosen(pod, victims, world, solver)
    except (InvalidClaimError, SelectorError):
        return {}


def _only_waits(pod: Pod, snapshot: Snapshot, solver: Solver) -> bool:
    node = snapshot.nodes.get(pod.nominated_node)
    if node is None or is_feasible(pod, node, snapshot, solver):
        return False
    return is_feasible(pod, node, after_departures(snapshot, node, solver.features), solver)


def _chosen(pod: Pod, victims: Mapping[str, Victims], snapshot: Snapshot, solver: Solver) -> Mapping[str, Victims]:
    """The victims per node: at first a set without a needless pod on each node, then the smallest set on each node.

    What is known when time is up is the answer.
    """
    found: dict[str, Victims] = {}
    reducible: dict[str, tuple[Evictions, Members]] = {}
    with suppress(TimeoutError):
        for name, given in victims.items():
            node = snapshot.nodes.get(name)
            if node is None or not given.uids:
                continue
            known = [known for uid in given.uids if (known := snapshot.pod(uid)) is not None]
            every = Evictions.of(pod, node, known, snapshot.pods_on(name), snapshot, solver)
            evictions, added = every.preferred(solver)
            if added is not None:
                found[name] = _joined(given, evictions, added)
            if added:
                reducible[name] = evictions, added
    for place, (name, (evictions, added)) in enumerate(reducible.items()):
        with suppress(TimeoutError):
            fewest = evictions.smallest(len(added), solver.share(len(reducible) - place))
            found[name] = _joined(victims[name], evictions, fewest or added)
    return found


def _joined(given: Victims, evictions: Evictions, added: Members) -> Victims:
    candidates = [evictions.candidates[each] for each in added]
    broken = given.pdb_violations + violations(candidates, evictions.allowed)
    return Victims((*given.uids, *(each.pod.uid for each in candidates)), broken)
