"""PodSchedulingContexts of pending pods: which nodes controllers are asked about, and the selected node.

The fields, and who writes them: docs/explanation/scheduling-contexts.md.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Protocol

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.scheduling_contexts import SchedulingContext, parse_scheduling_context
from extender.cluster.writes.other_kinds import ContextWrites
from extender.framework.pods.claims import named_claims
from extender.kube.api import ApiError, ObjectKey, revision_of
from extender.kube.resources import CONTEXTS
from extender.plugins.negotiation.protocol import PodName
from extender.tools.fairness.fair_memory import FairMemory

MOST_NODES: Final = 256
"""Nodes in one list of a PodSchedulingContext (PodSchedulingContextNodeListMaxSize of the proposal)."""

_PAUSE_SECONDS: Final = 30.0
"""Once all nodes were asked about, and all are refused, they are asked about again after this time."""

_MOST_PODS: Final = 256


class Suitable(Protocol):
    """Finds out which nodes suit a pod apart from the controllers of contexts."""

    async def __call__(self, pod: PodName, names: Collection[str]) -> Collection[str]:
        """The nodes that suit a pod; all of them if none suits, or if it is not known."""
        ...


class Contexts:
    """The PodSchedulingContexts of pods.

    Attributes:
        state: shows what was written, by us and by controllers.
        writes: writes contexts.

    Args:
        clock: measures durations, in seconds.
        suitable: finds out which nodes are worth a question.
    """

    def __init__(
        self, writes: ContextWrites, state: ClusterState, clock: Callable[[], float], suitable: Suitable
    ) -> None:
        self.state = state
        self.writes = writes
        self._clock = clock
        self._suitable = suitable
        self._asked: FairMemory[tuple[frozenset[str], float]] = FairMemory(_MOST_PODS)
        """By uid of the pod: the nodes that controllers were asked about, and when they last were."""
        self._allocating: Counter[str] = Counter()
        """By uid of the pod: allocations that wait for the selected node, in this process."""

    def of(self, pod: PodName) -> SchedulingContext | None:
        """The context of a pod, as the watch shows it; None if there is none, or if it belongs to an earlier pod."""
        found = self.state.snapshot.objects(SchedulingContext).get(_key(pod))
        return found if found is not None and found.pod_uid == pod.uid else None

    def answer(self, context: SchedulingContext, claim_uid: str) -> frozenset[str] | None:
        """What a controller has answered about a claim: the nodes that do not suit. None: nothing yet."""
        snapshot = self.state.snapshot
        pod = snapshot.pods.get(context.key)
        if pod is None:
            return None
        names = [name for name, claim in named_claims(pod, snapshot) if claim.claim.uid == claim_uid]
        return next((context.unsuitable[name] for name in names if name in context.unsuitable), None)

    async def post(self, pod: PodName, names: Collection[str]) -> SchedulingContext:
        """Ask controllers about nodes for a pod, unless they are asked about enough of them.

        Nodes are enough while one of them may be suitable, for the controllers and otherwise, so that a scheduler that
        names other nodes each time does not make controllers judge anew.

        Raises:
            ApiError, OutcomeUnknownError: the context could not be written.
        """
        known = self.of(pod)
        if known is not None and known.selected and not self._allocating[pod.uid]:
            # The end of an allocation could not take it back, so the controller would refuse the node for ever.
            await self.unselect(pod)
        if known is None or not known.potential:
            wanted = await self._suitable(pod, names) if len(names) > MOST_NODES else names
            return await self._posted(pod, _first(names, frozenset(wanted)))
        may_suit = frozenset(known.potential).difference(*known.unsuitable.values())
        if known.selected or (not may_suit.isdisjoint(names) and frozenset(known.potential).issuperset(names)):
            return known
        wanted = frozenset(await self._suitable(pod, names))
        if not may_suit.isdisjoint(wanted):
            return known
        new = self._next(pod, frozenset(names), frozenset(known.potential), wanted)
        if not new:
            return known
        # Its status has answers about other nodes, and does not say about which: there will be a new one.
        try:
            await self.writes.remove(known)
        except ApiError as error:
            if error.is_missing or error.is_conflict:
                return replace(known, unsuitable={})
            raise
        return await self._posted(pod, new)

    @contextmanager
    def allocating(self, pod: PodName) -> Iterator[None]:
        """An allocation in the body needs the selected node."""
        self._allocating[pod.uid] += 1
        try:
            yield
        finally:
            self._allocating[pod.uid] -= 1
            self._allocating += Counter()  # without those at 0

    async def select(self, pod: PodName, node: str) -> None:
        """Ask controllers to allocate for a node; returns when the watch shows it.

        Raises:
            ApiError, OutcomeUnknownError: the context could not be written.
        """
        spec = {"selectedNode": node}
        is_there = self.of(pod) is not None
        raw = await (self.writes.merge(_key(pod), spec) if is_there else self.writes.create(_key(pod), pod.uid, spec))
        await self.state.passed(CONTEXTS, revision_of(raw))

    async def unselect(self, pod: PodName) -> None:
        """No node is selected any more: controllers allocate nothing new for the pod. Raises as `select`."""
        context = self.of(pod)
        if context is not None and context.selected:
            await self.writes.merge(context.key, {"selectedNode": None})

    def _next(
        self, pod: PodName, names: frozenset[str], potential: frozenset[str], wanted: frozenset[str]
    ) -> Sequence[str]:
        """The nodes to ask about instead of those now; none if that is of no use, or not yet."""
        asked, at = self._asked.get(pod.uid) or (potential, self._clock())
        if wanted <= asked and self._clock() < at + _PAUSE_SECONDS:
            return ()
        left = names if wanted <= asked or len(names) <= MOST_NODES else names - asked
        if wanted <= asked:
            self._asked.pop(pod.uid)
        new = _first(left, wanted - asked or wanted)
        return () if frozenset(new) == potential else new

    async def _posted(self, pod: PodName, names: Sequence[str]) -> SchedulingContext:
        raw = await self.writes.create(_key(pod), pod.uid, {"potentialNodes": list(names)})
        asked, _ = self._asked.get(pod.uid) or (frozenset(), 0.0)
        self._asked.keep(pod.namespace, pod.uid, (asked | frozenset(names), self._clock()))
        return parse_scheduling_context(raw)


def _first(names: Collection[str], wanted: Collection[str]) -> Sequence[str]:
    """The nodes of one list: those that are wanted first, then by name."""
    return sorted(names, key=lambda name: (name not in wanted, name))[:MOST_NODES]


def _key(pod: PodName) -> ObjectKey:
    return ObjectKey(pod.namespace, pod.name)
