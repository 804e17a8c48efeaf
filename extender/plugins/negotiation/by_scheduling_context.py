"""Controllers that answer by PodSchedulingContexts: the questions of the protocol as fields of objects (KEP-3063).

The answer to a question comes with the watch, perhaps much later. So a question about nodes is pending until then, and
an allocation or a release waits for a limited time. Source: KEP-3063, "Coordinating resource allocation".
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from allocator import AllocationResult
from allocator.model.json import AVAILABLE, IN_SIMULATIONS
from allocator.tools import NO_TEXT, Printable, printable
from extender.cluster.controller_marks import asks_to_deallocate, is_to_deallocate
from extender.cluster.writes.claims import ClaimWrites
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
from extender.plugins.negotiation.scheduling_contexts import Contexts

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
