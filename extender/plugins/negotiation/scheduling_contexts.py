"""PodSchedulingContexts of pending pods, and the controllers that answer by them (KEP-3063).

The questions of the protocol are fields of these objects: which nodes controllers are asked about, and the selected
node. The answer to a question comes with the watch, perhaps much later. So a question about nodes is pending until
then, and an allocation or a release waits for a limited time. Source: KEP-3063, "Coordinating resource allocation".

The fields, and who writes them: docs/explanation/scheduling-contexts.md.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from allocator import AllocationResult
from allocator.model.json import AVAILABLE, IN_SIMULATIONS
from allocator.tools import NO_TEXT, Printable, printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.controller_marks import asks_to_deallocate, is_to_deallocate
from extender.cluster.objects.scheduling_contexts import SchedulingContext, parse_scheduling_context
from extender.cluster.writes.claims import ClaimWrites
from extender.cluster.writes.other_kinds import ContextWrites
from extender.framework.pods.claims import named_claims
from extender.framework.pods.negotiated_claims import awaited, unanswered
from extender.kube.api import ApiError, ObjectKey, OutcomeUnknownError, revision_of
from extender.kube.discovery import NotServedError
from extender.kube.resources import CLAIMS, CONTEXTS
from extender.plugins.negotiation.protocol import (
    UNSUITABLE_NODES,
    ClaimAsk,
    ControllerAwayError,
    ControllerError,
    ControllerPendingError,
    NegotiatedAnswer,
    NegotiatedQuestion,
    PodName,
)
from extender.tools.fairness import FairMemory

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


_T = TypeVar("_T")

_UNSUITABLE: Final = printable("the node is not suitable")
_LATER: Final = printable("it is asked about other nodes first")


class ContextController:
    """A controller that reads PodSchedulingContexts; implements `extender.plugins.negotiation.protocol.Controller`.

    Args:
        name: of the controller.
        post_seconds: how long the write of a context may take.
        seconds: how long an allocation or a release may take.
        contexts: the PodSchedulingContexts.
        claims: the claims of the API server.
    """

    def __init__(self, name: str, post_seconds: float, seconds: float, contexts: Contexts, claims: ClaimWrites) -> None:
        self._name = name
        self._post_seconds = post_seconds
        self._seconds = seconds
        self._contexts = contexts
        self._claims = claims
        self._state = contexts.state

    async def ask(self, question: NegotiatedQuestion) -> NegotiatedAnswer:
        """The answer to a question, as far as the watch shows it."""
        if question.simulation:
            return self._assumed(question)
        try:
            if question.pod is None:
                await self._deallocated(question.claims)
                return NegotiatedAnswer()
            if question.kind == UNSUITABLE_NODES:
                return await self._unsuitable(question, question.pod)
            with self._contexts.allocating(question.pod):
                return await self._allocated(question, question.pod)
        except NotServedError as error:
            raise ControllerAwayError(f"the kind {CONTEXTS.kind} is not installed") from error
        except (ApiError, OutcomeUnknownError) as error:
            raise ControllerError(str(error)) from error

    def _assumed(self, question: NegotiatedQuestion) -> NegotiatedAnswer:
        """The answer that classes say simulations may take. Raises ControllerError: some class does not say so."""
        classes = self._state.snapshot.classes
        for name in (str(request.get("deviceClassName")) for each in question.claims for request in each.requests):
            if name not in classes or not classes[name].available_in_simulations:
                why = "it answers by PodSchedulingContexts, so its answer is not known in a simulation"
                raise ControllerError(f'{why} (class {name} has no annotation {IN_SIMULATIONS}: "{AVAILABLE}")')
        return NegotiatedAnswer(allocations={each.uid: AllocationResult() for each in question.claims})

    async def close(self) -> None:
        """There is no connection of its own."""

    async def _unsuitable(self, question: NegotiatedQuestion, pod: PodName) -> NegotiatedAnswer:
        if any(each.uid == pod.uid for each in question.claims):
            text = "which is asked for pods only, and allocates immediate claims by itself"
            raise ControllerPendingError(unanswered(f"{awaited(self._name).in_words()}, {text}"))
        names = [each.name for each in question.nodes]
        try:
            async with asyncio.timeout(self._post_seconds):
                context = await self._contexts.post(pod, names)
        except TimeoutError as error:
            text = f"the PodSchedulingContext was not written within {self._post_seconds:g} s"
            raise ControllerError(text) from error
        found: dict[str, Mapping[str, Printable]] = {}
        for each in question.claims:
            refused = self._contexts.answer(context, each.uid)
            if refused is None:
                raise ControllerPendingError(unanswered(f"{awaited(self._name).in_words()} since {context.created}"))
            asked = frozenset(context.potential)
            told = {name: _UNSUITABLE if name in refused else NO_TEXT if name in asked else _LATER for name in names}
            found[each.uid] = {name: reason for name, reason in told.items() if reason}
        return NegotiatedAnswer(unsuitable=found)

    async def _allocated(self, question: NegotiatedQuestion, pod: PodName) -> NegotiatedAnswer:
        (node,) = question.nodes
        is_done = False
        try:
            async with asyncio.timeout(self._seconds):
                await self._contexts.select(pod, node.name)
                found = await self._until_seen(lambda: self._allocations(question.claims, pod, node.name))
                is_done = not isinstance(found, str)
        except TimeoutError as error:
            raise ControllerError(f"no allocation within {self._seconds:g} s") from error
        finally:
            if not is_done:
                with contextlib.suppress(ApiError, OutcomeUnknownError):
                    await self._contexts.unselect(pod)
        return (
            NegotiatedAnswer(refused=printable(found))
            if isinstance(found, str)
            else NegotiatedAnswer(allocations=found)
        )

    def _allocations(
        self, claims: tuple[ClaimAsk, ...], pod: PodName, node: str
    ) -> Mapping[str, AllocationResult] | str:
        """What is allocated, by uid of the claim; empty if some claim still waits; a text if it will not be."""
        found: dict[str, AllocationResult] = {}
        context = self._contexts.of(pod)
        for each in claims:
            claim = self._state.snapshot.claim(each.uid)
            if claim is None or claim.claim.deleting:
                return f"claim {each} is {'gone' if claim is None else 'deleted'}"
            if asks_to_deallocate(claim.claim):
                return f"claim {each} is to be deallocated"
            if context is None or context.selected != node:
                return "the node is not selected any more"
            if claim.claim.allocation is not None:
                found[each.uid] = claim.claim.allocation
            elif node in (self._contexts.answer(context, each.uid) or ()):
                return _UNSUITABLE
        return found if len(found) == len(claims) else {}

    async def _deallocated(self, claims: tuple[ClaimAsk, ...]) -> None:
        for each in claims:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._deallocate(each)
            except TimeoutError as error:
                raise ControllerError(f"claim {each} is not deallocated within {self._seconds:g} s") from error

    async def _deallocate(self, ask: ClaimAsk) -> None:
        key = ObjectKey(ask.namespace, ask.name)
        now = await self._claims.get(key)
        if now.claim.uid != ask.uid:
            return
        if not asks_to_deallocate(now.claim):
            now = await self._claims.update(is_to_deallocate(now.raw))
        await self._state.passed(CLAIMS, revision_of(now.raw))
        await self._until_seen(lambda: self._is_released(ask))

    def _is_released(self, ask: ClaimAsk) -> bool:
        claim = self._state.snapshot.claim(ask.uid)
        return claim is None or not asks_to_deallocate(claim.claim)

    async def _until_seen(self, find: Callable[[], _T]) -> _T:
        """What is found once the watch shows it. The caller sets a deadline."""
        while not (found := find()):
            await self._changed()
        return found

    async def _changed(self) -> None:
        """Wait until a claim or a context has changed."""
        state = self._state
        changes: list[Awaitable[None]] = [state.passed(each, state.seen(each) + 1) for each in (CLAIMS, CONTEXTS)]
        tasks = [asyncio.ensure_future(each) for each in changes]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in tasks:
                each.cancel()
