"""Plugins: each is one feature's part of a scheduling cycle, as in kube-scheduler's scheduling framework.

The extension points have kube-scheduler's names where it has them. The table of all plugins is
`extender.plugins.table`.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar, NamedTuple, TypeAlias

from allocator import Allocation, Reason
from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.reservations import Reservation
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.decisions.verdict import PendingReason
from extender.framework.pods.claims import PodClaims
from extender.framework.pods.extended_resources import Needs
from extender.framework.victims import NO_BORROWERS, JoinedOrder, VictimOrder, Victims


class Lacking(NamedTuple):
    """A pod that finds no devices, which refuses other pods, too: the next one of their gang.

    Attributes:
        pod: by itself.
        cluster: the fork in which the pods before it have theirs.
        text: why the others wait, up to the devices that this pod lacks.
    """

    pod: Pod
    cluster: Snapshot
    text: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a plugin refuses a pod.

    Attributes:
        reason: for the scheduler. It is the same at each try, and the same on equivalent nodes.
        detail: the same for people, with what is in use now; empty: the reason says everything.
        advice: what would help; empty: nothing is known.
        lacking: the pod that is to be explained instead, for an explanation; None: this pod.
    """

    reason: Reason
    detail: str = ""
    advice: str = ""
    lacking: Lacking | None = None

    def __str__(self) -> str:
        return self.detail or self.reason.in_words()


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """A node where a pod's devices are found: what the pod needs there, and what it would get."""

    node: NodeObject
    needs: Needs
    found: Allocation


NodeCheck: TypeAlias = Callable[[NodeOffer], Refusal | None]
"""Compares one node, and what a pod would get there, with a plugin's rule.

It is kube-scheduler's Filter. Raises TimeoutError: there was not enough time.
"""


class Plugin:
    """One feature's part of a scheduling cycle. A feature overrides the points at which it has something to say.

    A cycle is one try to place one pod on a snapshot. It runs on the event loop or in a thread. So a plugin writes
    nothing, awaits nothing, and waits for no lock. All points may raise `TimeoutError`, with what takes too long.

    Attributes:
        name: unique; results, metrics and logs name the plugin by it.
        waits_for: what a pod waits for that this plugin refuses. Devices, if it refuses none.
        event: the reason of the Event on a pod whose bind the plugin has refused; empty: there is no Event.
        wakes_its_pods: a background task of the feature wakes the pods that the plugin refuses, so requeue does not.
        of_pod: fields of pods that the plugin is about. If all are empty, `pre_enqueue`, `keeps_devices` and `notes`
            are not asked.
        of_cluster: fields of snapshots that the plugin is about. If all are empty, no other point is asked.
        of_claims: fields of the pod's claims that the plugin is about. If all are empty, `pre_filter` is not asked.
    """

    name: ClassVar[str]
    waits_for: ClassVar[PendingReason] = PendingReason.DEVICES
    event: ClassVar[str] = ""
    wakes_its_pods: ClassVar[bool] = False
    of_pod: ClassVar[Sequence[str]] = ()
    of_cluster: ClassVar[Sequence[str]] = ()
    of_claims: ClassVar[Sequence[str]] = ()

    def is_slow(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> bool:
        """Whether `pre_filter` may take longer than a millisecond. It is asked in a thread then."""
        return False

    def pre_enqueue(self, pod: Pod, snapshot: Snapshot) -> Refusal | None:
        """Why a pod is not to be tried at all now, whatever its claims are; None: it may be."""

    def takes_a_try(self, refusal: Refusal, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether what ends a refusal by `pre_enqueue` begins with a try of the pod, such as a plan for its gang."""
        return False

    def withhold(self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: Solver) -> PodClaims:
        """The claims without the optional requests that the pod may not have."""
        return claims

    def pre_filter(self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: Solver) -> Refusal | NodeCheck | None:
        """Why a pod can run on no node, or what to compare on each node where its devices are found; None: neither."""

    def reserve(
        self, pod: Pod, claims: PodClaims, offer: NodeOffer, snapshot: Snapshot, solver: Solver
    ) -> Refusal | None:
        """Why a pod may not be bound to a node with what was found there, by the newest snapshot; None: it may be.

        Bind does not ask the checks of `pre_filter`.
        """

    def verify(self, claim: ClaimObject, pod: Pod, snapshot: Snapshot, solver: Solver) -> Refusal | None:
        """Why a pod may not have an allocation that was written for it, by the newest snapshot; None: it may.

        Earlier allocations count alone: if two replicas allocate the last device, the later one gives it back.
        """

    def post_filter(
        self, pod: Pod, victims: Mapping[str, Victims], snapshot: Snapshot, solver: Solver
    ) -> Mapping[str, Victims]:
        """Whom to evict on each node for a pod that fits nowhere, by whom its scheduler would evict there.

        A node is left out if no evictions there make room for the pod.
        """
        return victims

    def victim_order(self, pods: Iterable[Pod], snapshot: Snapshot, solver: Solver) -> VictimOrder:
        """Which of some pods go first if pods are evicted."""
        return NO_BORROWERS

    def counts_holders(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether the plugin's rule for a pod depends on who holds devices, and not only on which devices are free.

        Then room on a node does not help the pod by itself, it matters which pods make it, and pods of other namespaces
        may get another answer.
        """
        return False

    def nominate(self, pods: Sequence[Pod], snapshot: Snapshot, solver: Solver) -> Refusal | None:
        """Why nothing may be kept for some pods of one namespace; None: it may. Each pod has what would be kept for it.

        What is kept for other pods counts. If something is kept for all of these pods already, the question is whether
        it may stay.
        """

    def keeps_devices(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether the feature itself keeps devices for a pod, on a node that it chooses.

        Then the pod takes no other node, and no other feature evicts pods for it.
        """
        return False

    def queueing_hint(self, topic: Topic, key: Hashable, before: Snapshot, after: Snapshot) -> Collection[str]:
        """The namespaces whose pods the plugin may refuse no more after a change of one thing.

        Args:
            topic: what kind of thing has changed.
            key: its key, as the topic says.
            before: the cluster when the pods were refused.
            after: the cluster now, with other changes.
        """
        return ()

    def explain(
        self, refusal: Refusal, pod: Pod, snapshot: Snapshot, decider: Decider, solver: Solver
    ) -> Refusal | None:
        """What people are told of a refusal by `pre_enqueue`. It may take a search.

        None: nothing, because the plugin itself is about to do what ends the refusal.
        """
        return refusal

    def notes(self, pod: Pod, snapshot: Snapshot) -> Sequence[str]:
        """What people are told of a pod that fits or has a node."""
        return ()


class WaitingPlugin:
    """The part of a feature that waits, in filter and in bind: for other processes, or for its own writes.

    It runs on the event loop, before and after the cycle that a `Plugin` is asked in. A feature has it made with what
    it needs (`extender.faces.assembly`), and overrides the points at which it waits.

    Attributes:
        of_cluster: fields of snapshots that the plugin is about. If all are empty, filter does not call `before`.
        of_claims: fields of the pod's claims that the plugin is about. If all are empty, a bind calls no point.
    """

    of_cluster: ClassVar[Sequence[str]] = ()
    of_claims: ClassVar[Sequence[str]] = ()

    async def before(
        self,
        pod: Pod,
        names: Collection[str],
        sent: Callable[[], Mapping[str, NodeObject]] | None = None,
        *,
        in_verb: bool = False,
    ) -> None:
        """Wait for what the feature has to know before a pod is decided. The snapshot is taken after it.

        Args:
            pod: with or without a node; or the stand-in of a claim.
            names: the nodes that it is decided for.
            sent: reads the nodes, where whole nodes were sent. That takes long, so it is called only if it must be.
            in_verb: a scheduler waits, and all its pods with it.
        """

    def forget(self, claim_uids: Iterable[str]) -> None:
        """Forget what `before` has learned about claims, so that the next call asks again."""

    def awaited(self, pod: Pod) -> Collection[str]:
        """The names of those that `pre_bind` waits for; empty: it does not wait for a pod."""
        return ()

    def ready_to_bind(self, claims: PodClaims, snapshot: Snapshot) -> Snapshot:
        """The cluster in which a bind decides. What `pre_bind` asks for counts as agreed there."""
        return snapshot

    def reserve(self, claims: PodClaims) -> str:
        """Why a pod may not be bound with its claims, as far as that is known without waiting; empty: it may be."""
        return ""

    async def pre_bind(
        self, pod: Pod, node: NodeObject, claims: PodClaims, reservations: Sequence[Reservation]
    ) -> tuple[Reservation, ...]:
        """Do what the feature does before the bind writes claims; returns what the bind is to write.

        The reservations are assumed when it is called. If it raises an error, nothing is assumed any more.

        Raises:
            BindError: the pod can't be bound to the node.
        """
        return tuple(reservations)

    async def deallocate(self, claim: ClaimObject) -> bool | None:
        """Have a claim that no pod uses give back its devices, if the feature has allocated it by itself.

        Returns:
            whether that is on its way; None: the feature has not allocated the claim, so its allocation can be cleared.
        """
        return None

    async def close(self) -> None:
        """Close connections. A later call opens new ones."""


class Refused(NamedTuple):
    """A refusal, and the plugin that refuses."""

    by: str
    refusal: Refusal


class Plugins:
    """The plugins, in the order in which they are asked. The first refusal counts.

    Attributes:
        waits_for: name of each plugin to what a pod waits for that it refuses.
        events: name of each plugin to the reason of its Events; empty: it has none.
        self_waking: the names of the plugins whose feature wakes its pods.
        counting: the names of the plugins whose rules depend on who holds devices.
    """

    def __init__(self, table: Sequence[Plugin] = ()) -> None:
        def overriding(point: str) -> tuple[Plugin, ...]:
            return tuple(each for each in table if getattr(type(each), point) is not getattr(Plugin, point))

        self.waits_for = {each.name: each.waits_for for each in table}
        self.events = {each.name: each.event for each in table}
        self.self_waking = frozenset(each.name for each in table if each.wakes_its_pods)
        self._slow, self._pre_enqueue, self._withhold = map(overriding, ("is_slow", "pre_enqueue", "withhold"))
        self._pre_filter, self._reserve, self._verify = map(overriding, ("pre_filter", "reserve", "verify"))
        self._post_filter, self._nominate = map(overriding, ("post_filter", "nominate"))
        self._victim_order, self._counts_holders = map(overriding, ("victim_order", "counts_holders"))
        self._keeps_devices, self._notes = overriding("keeps_devices"), overriding("notes")
        self._queueing_hint = overriding("queueing_hint")
        self.counting = frozenset(each.name for each in self._counts_holders)

    def are_slow(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> bool:
        """Whether `pre_filter` may take longer than a millisecond."""
        return any(_has_any(snapshot, each.of_cluster) and each.is_slow(pod, snapshot, solver) for each in self._slow)

    def pre_enqueue(self, pod: Pod, snapshot: Snapshot) -> Refused | None:
        """Who refuses to try a pod at all, and why; None if nobody does."""
        for each in self._pre_enqueue:
            refusal = each.pre_enqueue(pod, snapshot) if _has_any(pod, each.of_pod) else None
            if refusal is not None:
                return Refused(each.name, refusal)
        return None

    def in_vain(self, pod: Pod, snapshot: Snapshot) -> Refused | None:
        """Who refuses a pod by `pre_enqueue` so that a try changes nothing, and why; None if nobody does."""
        for each in self._pre_enqueue:
            refusal = each.pre_enqueue(pod, snapshot) if _has_any(pod, each.of_pod) else None
            if refusal is not None and not each.takes_a_try(refusal, pod, snapshot):
                return Refused(each.name, refusal)
        return None

    def withheld(self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: Solver) -> PodClaims:
        """The claims without the optional requests that the pod may not have."""
        for each in self._withhold:
            if _has_any(snapshot, each.of_cluster):
                claims = each.withhold(pod, claims, snapshot, solver)
        return claims

    def pre_filter(
        self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: Solver
    ) -> Refused | Sequence[tuple[str, NodeCheck]]:
        """Who refuses a pod on all nodes, and why; or what is to be compared on each node, each with its plugin.

        Raises:
            TimeoutError: there was not enough time.
        """
        checks: list[tuple[str, NodeCheck]] = []
        for each in self._pre_filter:
            is_concerned = _has_any(snapshot, each.of_cluster) and _has_any(claims, each.of_claims)
            found = each.pre_filter(pod, claims, snapshot, solver) if is_concerned else None
            if isinstance(found, Refusal):
                return Refused(each.name, found)
            if found is not None:
                checks.append((each.name, found))
        return checks

    def reserve(
        self, pod: Pod, claims: PodClaims, offer: NodeOffer, snapshot: Snapshot, solver: Solver
    ) -> Refused | None:
        """Who refuses to bind a pod to a node with what was found there, and why; None if nobody does.

        Raises:
            TimeoutError: there was not enough time.
        """
        for each in self._reserve:
            is_concerned = _has_any(snapshot, each.of_cluster)
            refusal = each.reserve(pod, claims, offer, snapshot, solver) if is_concerned else None
            if refusal is not None:
                return Refused(each.name, refusal)
        return None

    def verify(self, claim: ClaimObject, pod: Pod, snapshot: Snapshot, solver: Solver) -> Refused | None:
        """Who refuses an allocation that was written for a pod, and why; None if nobody does.

        Raises:
            TimeoutError: there was not enough time.
        """
        for each in self._verify:
            refusal = each.verify(claim, pod, snapshot, solver) if _has_any(snapshot, each.of_cluster) else None
            if refusal is not None:
                return Refused(each.name, refusal)
        return None

    def post_filter(
        self, pod: Pod, victims: Mapping[str, Victims], snapshot: Snapshot, solver: Solver
    ) -> Mapping[str, Victims]:
        """Whom to evict on each node for a pod that fits nowhere; ``victims`` are those that its scheduler has chosen.

        Raises:
            TimeoutError: there was not enough time.
        """
        for each in self._post_filter:
            if _has_any(snapshot, each.of_cluster):
                victims = each.post_filter(pod, victims, snapshot, solver)
        return victims

    def victim_order(self, pods: Iterable[Pod], snapshot: Snapshot, solver: Solver) -> VictimOrder:
        """Which of some pods go first if pods are evicted."""
        asked, may_go = [each for each in self._victim_order if _has_any(snapshot, each.of_cluster)], tuple(pods)
        found = [each.victim_order(may_go, snapshot, solver) for each in asked]
        return found[0] if len(found) == 1 else JoinedOrder(found)

    def count_holders(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether a rule for a pod depends on who holds devices, and not only on which devices are free."""
        return any(
            _has_any(snapshot, each.of_cluster) and each.counts_holders(pod, snapshot) for each in self._counts_holders
        )

    def nominate(self, pods: Sequence[Pod], snapshot: Snapshot, solver: Solver) -> Refused | None:
        """Who refuses to keep something for some pods of one namespace, and why; None if nobody does.

        Args:
            pods: each with what would be kept for it.
            snapshot: the cluster. Nothing is kept for them yet, or it is asked whether that may stay.
            solver: the allocator.

        Raises:
            TimeoutError: there was not enough time.
        """
        for each in self._nominate:
            refusal = each.nominate(pods, snapshot, solver) if _has_any(snapshot, each.of_cluster) else None
            if refusal is not None:
                return Refused(each.name, refusal)
        return None

    def keeper(self, pod: Pod, snapshot: Snapshot) -> str:
        """The plugin that itself keeps devices for a pod; empty: none does."""
        for each in self._keeps_devices:
            if _has_any(pod, each.of_pod) and each.keeps_devices(pod, snapshot):
                return each.name
        return ""

    def queueing_hint(self, topic: Topic, key: Hashable, before: Snapshot, after: Snapshot) -> set[str]:
        """The namespaces whose pods some plugin may refuse no more after a change; see `Plugin.queueing_hint`."""
        return {
            namespace
            for each in self._queueing_hint
            if _has_any(before, each.of_cluster) or _has_any(after, each.of_cluster)
            for namespace in each.queueing_hint(topic, key, before, after)
        }

    def explain(self, pod: Pod, snapshot: Snapshot, decider: Decider, solver: Solver) -> Refused | None:
        """Who refuses to try a pod at all, as people are told it: the first refusal of which there is something to say.

        Args:
            pod: has no node.
            snapshot: the cluster.
            decider: remembers verdicts on the cluster.
            solver: the decider's, for as long as there is time.
        """
        for each in self._pre_enqueue:
            refusal = each.pre_enqueue(pod, snapshot) if _has_any(pod, each.of_pod) else None
            told = None if refusal is None else each.explain(refusal, pod, snapshot, decider, solver)
            if told is not None:
                return Refused(each.name, told)
        return None

    def notes(self, pod: Pod, snapshot: Snapshot) -> Sequence[str]:
        """What people are told of a pod that fits or has a node."""
        return [note for each in self._notes if _has_any(pod, each.of_pod) for note in each.notes(pod, snapshot)]


def _has_any(value: Pod | PodClaims | Snapshot, fields: Sequence[str]) -> bool:
    """Whether one of the fields is not empty; True if there are no fields. It costs less than to ask the plugin."""
    return not fields or any(map(getattr, repeat(value), fields))
