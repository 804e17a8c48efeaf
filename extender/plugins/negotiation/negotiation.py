"""Negotiation: asks controllers on which nodes they can allocate, before filter; and to allocate, before bind writes.

The order of questions and writes, and what a crash leaves: docs/explanation/negotiated-claims.md.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import structlog
from immutables import Map

from allocator import Reason
from allocator.tools import NO_TEXT, Printable, printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.controller_marks import Mark
from extender.cluster.indexes import ControllerAnswer
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.reservations import Reservation
from extender.framework.bind_errors import ControllerRefusesError
from extender.framework.cycle import refreshed
from extender.framework.plugin import WaitingPlugin
from extender.framework.pods.claims import Blocked, PodClaims, claims_of
from extender.framework.pods.negotiated_claims import NegotiatedClaim, awaited, ready_to_bind, unanswered
from extender.plugins.negotiation.allocating import Allocating, Deallocation, only_on
from extender.plugins.negotiation.known_controller import KnownController
from extender.plugins.negotiation.protocol import (
    UNSUITABLE_NODES,
    ClaimAsk,
    ControllerAwayError,
    ControllerError,
    ControllerPendingError,
    NegotiatedAnswer,
    NegotiatedQuestion,
    NodeName,
)
from extender.plugins.negotiation.questions import ParametersError, node_name, pod_name
from extender.tools.fairness import ReportingMemory

logger = structlog.get_logger()

FRESH_SECONDS: Final = 1.0
"""An answer is not asked for again within this time, unless the controller's version changes."""

_USABLE_SECONDS: Final = 60.0
"""Where filter may not wait for a new answer, it takes one of this age: bind asks the controller in any case. A pod
that is woken for an answer comes back after kube-scheduler's backoff, 10 s at most. The controllers of a pod that waits
are asked every 30 s."""

_MOST_ANSWERS: Final = 256
"""Different answers that are remembered: 0.3 MB each if 5,000 nodes are refused for one reason."""

_MOST_CLAIMS: Final = 1024
"""Claims whose answers are remembered, in shares by namespace. A pod whose answers are forgotten is woken when devices
become free only after its controller was asked again."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """The moment of an answer about a claim: the clock, the version of the controller, and what was held then."""

    at: float
    version: str
    held: tuple[tuple[ClaimAsk, NodeName], ...] = ()


@dataclass(frozen=True, slots=True)
class _Inquiry:
    """A question to one controller about nodes.

    Attributes:
        controller: its name.
        pod: the nodes are for it.
        claims: those of its claims that the controller allocates.
        names: of the nodes.
        nodes: of the cluster, or those that were sent.
    """

    controller: str
    pod: Pod
    claims: tuple[NegotiatedClaim, ...]
    names: frozenset[str]
    nodes: Mapping[str, NodeObject] | Map[str, NodeObject]

    @property
    def uids(self) -> frozenset[str]:
        """The uids of the claims."""
        return frozenset(each.uid for each in self.claims)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The facts about nodes that a question had.

    Attributes:
        nodes: the cluster's at that time.
        names: of those that were asked about.
    """

    nodes: Mapping[str, NodeObject] | Map[str, NodeObject]
    names: frozenset[str]
    labels: tuple[str, ...]
    told: tuple[NodeName, ...]

    def is_about(self, inquiry: _Inquiry, labels: tuple[str, ...]) -> bool:
        """Whether the same is to be told again."""
        return self.nodes is inquiry.nodes and self.names is inquiry.names and self.labels == labels


@dataclass(frozen=True, slots=True)
class _Question:
    """A question about nodes that is on its way to a controller.

    Attributes:
        uids: of the claims.
        names: of the nodes.
        began: when it was asked, by the clock.
        task: ends when the state has the answers.
    """

    uids: frozenset[str]
    names: frozenset[str]
    began: float
    task: asyncio.Task[None]


class Negotiation(WaitingPlugin):
    """Asks the controllers of a pod's negotiated claims.

    Attributes:
        controllers: by name.
        simulation: controllers are told to allocate nothing.

    Args:
        state: gets the answers about nodes.
        allocating: asks for allocations.
        clock: measures durations, in seconds.
    """

    of_cluster: ClassVar[Sequence[str]] = ("controllers",)
    of_claims: ClassVar[Sequence[str]] = ("negotiated",)

    def __init__(self, state: ClusterState, allocating: Allocating, clock: Callable[[], float]) -> None:
        self.controllers = allocating.controllers
        self.simulation = allocating.simulation
        self.deallocation = Deallocation(allocating.controllers, allocating.claims)
        self._state = state
        self._allocating = allocating
        self._clock = clock
        self._heard = ReportingMemory[_Heard](_MOST_CLAIMS)
        self._latest = ControllerAnswer()
        self._asked_last: frozenset[str] = frozenset()
        self._last: _Nodes | None = None
        self._late: dict[str, ControllerAnswer] = {}
        self._questions: dict[str, list[_Question]] = defaultdict(list)

    @property
    def running(self) -> list[asyncio.Task[None]]:
        """The questions about nodes that are on their way. A question goes on if filter does not wait for it."""
        return [each.task for questions in self._questions.values() for each in questions]

    async def before(
        self,
        pod: Pod,
        names: Collection[str],
        sent: Callable[[], Mapping[str, NodeObject]] | None = None,
        *,
        in_verb: bool = False,
    ) -> None:
        """Ask about nodes for a pod. A controller that was away is asked only if no scheduler waits."""
        await self.ask(pod, names, sent, may_wait=not in_verb, in_verb=in_verb)

    async def ask(
        self,
        pod: Pod,
        names: Iterable[str],
        sent: Callable[[], Mapping[str, NodeObject]] | None = None,
        *,
        anew: bool = False,
        may_wait: bool = False,
        in_verb: bool = False,
        writes: bool = True,
    ) -> None:
        """Ask about nodes for a pod, as far as the answers are not known; the state has them then.

        Args:
            pod: may have negotiated claims.
            names: the nodes.
            sent: reads the nodes, where whole nodes were sent; that takes long, so it is called for a question only.
            anew: ask also if the answers are known.
            may_wait: ask also a controller that was away at the last question: nobody else waits for this answer.
            in_verb: a scheduler waits, and all its pods with it: for each controller as long as its budget lets.
            writes: ask also the controllers to whom questions are written to the API server.
        """
        snapshot = self._state.snapshot
        claims = negotiated_claims(pod, snapshot)
        if not claims:
            return
        asked = frozenset(names)
        self._asked_last = asked = self._asked_last if asked == self._asked_last else asked
        by_controller: dict[str, list[NegotiatedClaim]] = defaultdict(list)
        for each in claims:
            if anew or not self._is_fresh(each, asked):
                by_controller[each.controller].append(each)
        if not by_controller:
            return
        nodes = snapshot.nodes if sent is None else sent()
        tries_again = may_wait or self.simulation  # a simulation has no background tasks that would
        # Those of contexts are asked last: only about nodes that the others may accept, if there are too many.
        for writes_claims in (False, True) if writes or self.simulation else (False,):
            groups = [each for each in by_controller.items() if self._writes_claims(each[0]) == writes_claims]
            questions = []
            for name, group in groups:
                if hindrance := self._hindrance(name, group, tries_again=tries_again):
                    answer = ControllerAnswer(unanswered(hindrance))
                    self._remember_answers(pod.namespace, {each.uid: answer for each in group})
                    continue
                inquiry = _Inquiry(name, pod, tuple(group), asked, nodes)
                is_limited = in_verb and not self.simulation
                questions.append(self._waited(inquiry) if is_limited else _answered(self._begun(inquiry)))
            await asyncio.gather(*questions)

    def is_asking(self, pod: Pod) -> bool:
        """Whether a controller has not answered yet about a pod, because filter has not waited for the answer."""
        claims = negotiated_claims(pod, self._state.snapshot)
        return any(
            each.answer.problem == awaited(each.controller)
            or any(each.uid in question.uids for question in self._questions.get(each.controller, ()))
            for each in claims
        )

    def at_once(self, controller: str) -> int:
        """The number of questions about nodes that a controller can be asked together."""
        known = self.controllers.get(controller)
        return 1 if known is None else known.at_once(self._pace(known))

    def tells_changes(self, controller: str) -> bool:
        """Whether the watch shows that a controller judges anew, so that it need not be asked."""
        return self._writes_claims(controller)

    def _pace(self, known: KnownController) -> float:
        """The seconds that an answer of a controller about nodes takes, as far as is known."""
        now = self._clock()
        return max((known.answer_seconds, *(now - each.began for each in self._questions.get(known.name, ()))))

    async def look(self, pod: Pod) -> None:
        """Ask about all nodes for a pod or a stand-in, to explain it; nothing is written.

        What is known of controllers to whom questions are written is then from `ask`.
        """
        snapshot = self._state.snapshot
        if snapshot.controllers:
            await self.ask(refreshed(pod, snapshot), snapshot.nodes, writes=False)

    def problem_of(self, claims: Iterable[NegotiatedClaim]) -> Printable:
        """Why claims cannot be allocated, whatever their controllers say; empty if they may be."""
        for each in claims:
            known = self.controllers.get(each.controller)
            if known is None:
                classes = ", ".join(every.name for every in each.classes)
                return printable(f"controller {each.controller} of device class {classes} is not in the settings")
            if problem := known.problem_of(each):
                return problem
        return NO_TEXT

    def _writes_claims(self, name: str) -> bool:
        known = self.controllers.get(name)
        return known is not None and known.writes_claims

    def ready_to_bind(self, claims: PodClaims, snapshot: Snapshot) -> Snapshot:
        """The cluster in which controllers have agreed to all nodes."""
        return ready_to_bind(claims.negotiated, snapshot)

    def reserve(self, claims: PodClaims) -> Printable:
        """Why the claims cannot be allocated, whatever their controllers say."""
        return self.problem_of(claims.negotiated)

    async def pre_bind(
        self, pod: Pod, node: NodeObject, claims: PodClaims, reservations: Sequence[Reservation]
    ) -> tuple[Reservation, ...]:
        """Have controllers allocate; returns the reservations with what they have allocated.

        Raises:
            ControllerRefusesError: a controller does not allocate. Its answers about nodes are forgotten.
        """
        uids = {each.uid for each in claims.negotiated}
        for each in reservations:
            if each.uid in uids:
                self._state.assume(each.uid, only_on(node.node, each.allocation), pod.uid, each.claim.claim.spec)
        try:
            allocated = await self._allocating.allocate(pod, node, claims.negotiated, reservations)
        except ControllerRefusesError as error:
            self.forget(uids)
            raise ControllerRefusesError(error.why, node.name) from error
        for each in allocated:
            if each.uid in uids and not each.allocates:
                self._state.forget(each.uid)  # the claim itself has its allocation
        return allocated

    async def deallocate(self, claim: ClaimObject) -> bool | None:
        """Ask the controller of a claim whose allocation it has written; None: no controller has."""
        return await self.deallocation.request(claim) if self.deallocation.is_idle(claim) else None

    def has_ended(self, claim_uid: str, mark: Mark) -> bool:
        """Whether the attempt of a mark is over: it was made here and is over, or its time is."""
        return self._allocating.has_ended(claim_uid, mark)

    def forget(self, claim_uids: Iterable[str]) -> None:
        """Forget the answers about claims."""
        answers = self._state.snapshot.answers
        for uid in claim_uids:
            self._heard.pop(uid)
            if uid in answers:
                answers = answers.delete(uid)
        self._state.hear(answers)

    def refused_by(self, pod: Pod, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """The controllers that keep a pod from nodes, as far as is known, with the nodes."""
        snapshot = self._state.snapshot
        found: dict[str, frozenset[str]] = {}
        nodes = [node for name in names if (node := snapshot.nodes.get(name))]
        for each in negotiated_claims(pod, snapshot):
            refused = frozenset(node.name for node in nodes if each.is_for(node) and each.refusal(node))
            if refused:
                found[each.controller] = found.get(each.controller, frozenset()) | refused
        return found

    def awaited(self, pod: Pod) -> frozenset[str]:
        """The controllers that are asked to serve a pod. If one of them is not in the settings, none is asked."""
        names = frozenset(each.controller for each in negotiated_claims(pod, self._state.snapshot))
        return names if names <= self.controllers.keys() else frozenset()

    def sweep(self) -> None:
        """Forget the answers about claims that are gone or allocated."""
        snapshot = self._state.snapshot
        self.forget(uid for uid in list(self._heard) if not _is_open(uid, snapshot))

    async def close(self) -> None:
        """Close the connections to controllers."""
        for each in self.controllers.values():
            await each.controller.close()

    def _is_fresh(self, claim: NegotiatedClaim, names: frozenset[str]) -> bool:
        heard, known = self._heard.get(claim.uid), self.controllers.get(claim.controller)
        if heard is None or known is None:
            return False
        is_current = (heard.version, heard.held) == (known.version, self._allocating.held(known.name))
        is_current = is_current and self._clock() < heard.at + FRESH_SECONDS
        return is_current and claim.answer.asked is not None and names <= frozenset(claim.answer.asked)

    def _hindrance(self, name: str, claims: Sequence[NegotiatedClaim], *, tries_again: bool) -> Printable:
        """Why a controller is not asked about claims now; empty if it is."""
        if problem := self.problem_of(claims):
            return problem
        known = self.controllers[name]
        return known.problem if known.is_paused or not tries_again else NO_TEXT

    async def _waited(self, inquiry: _Inquiry) -> None:
        """Ask a controller, and wait as long as its budget lets a scheduler wait for the pod.

        A question is not begun if the controller was slower lately: then the background tasks ask.
        """
        name, namespace = inquiry.controller, inquiry.pod.namespace
        known, now = self.controllers[name], asyncio.get_running_loop().time
        began = now()
        left = known.budget.left(namespace, began)
        if left > self._pace(known):
            task = self._begun(inquiry)
            try:
                await asyncio.wait({task}, timeout=left)
            finally:  # also if the caller has left
                known.budget.spend(namespace, now() - began)
                known.metrics.waited(name, now() - began)
            if task.done():
                task.result()
                return
        known.metrics.deferred(name)
        late = self._late.setdefault(name, ControllerAnswer(awaited(name)))  # of many pods, it is in memory once
        unusable = (each for each in inquiry.claims if not self._is_usable(each, inquiry.names))
        self._remember_answers(namespace, {each.uid: late for each in unusable})

    def _is_usable(self, claim: NegotiatedClaim, names: frozenset[str]) -> bool:
        """Whether filter may decide by the latest answer while a new one is on its way."""
        heard = self._heard.get(claim.uid)
        if heard is None or self._clock() >= heard.at + _USABLE_SECONDS:
            return False
        return claim.answer.asked is not None and names <= frozenset(claim.answer.asked)

    def _begun(self, inquiry: _Inquiry) -> asyncio.Task[None]:
        """The question to a controller: one that is on its way already, or a new one."""
        name = inquiry.controller
        for each in self._questions[name]:
            if inquiry.uids <= each.uids and inquiry.names <= each.names:
                return each.task
        task = asyncio.create_task(self._heard_of(inquiry))
        question = _Question(inquiry.uids, inquiry.names, self._clock(), task)
        self._questions[name].append(question)

        def ended(_: asyncio.Task[None]) -> None:
            self._questions[name].remove(question)
            if not task.cancelled() and (error := task.exception()):  # perhaps nobody waits for it any more
                logger.error("controller not asked", controller=name, pod=str(inquiry.pod), error=repr(error))

        task.add_done_callback(ended)
        return task

    async def _heard_of(self, inquiry: _Inquiry) -> None:
        self._remember_answers(inquiry.pod.namespace, await self._answers_of_controller(inquiry))

    async def _answers_of_controller(self, inquiry: _Inquiry) -> Mapping[str, ControllerAnswer]:
        """The answers of one controller, by uid of the claim."""
        name, claims, names = inquiry.controller, inquiry.claims, inquiry.names
        known = self.controllers[name]
        suitable = self._suitable(inquiry, known.labels)
        try:
            asks = [await known.about(each) for each in claims]
        except ParametersError as error:
            return {each.uid: ControllerAnswer(unanswered(str(error))) for each in claims}
        held = self._allocating.held(name)
        question = NegotiatedQuestion(
            UNSUITABLE_NODES, tuple(asks), pod_name(inquiry.pod), suitable, simulation=self.simulation, held=held
        )
        problem: Reason | None = None
        try:
            answer = await known.ask(question) if suitable else NegotiatedAnswer(known.version)
        except ControllerAwayError:
            return {each.uid: ControllerAnswer(unanswered(known.problem)) for each in claims}
        except ControllerPendingError as error:
            return {each.uid: ControllerAnswer(error.reason) for each in claims}
        except ControllerError as error:  # it may be about these claims: others are asked about
            answer, problem = NegotiatedAnswer(known.version), unanswered(f"controller {name}: {error}")
        heard = _Heard(self._clock(), answer.version, held)
        for each in claims:
            self._heard.keep(inquiry.pod.namespace, each.uid, heard)
        if problem is not None:
            return {each.uid: ControllerAnswer(problem, asked=names) for each in claims}
        return {each.uid: self._shared(answer.unsuitable.get(each.uid, {}), names) for each in claims}

    def _suitable(self, inquiry: _Inquiry, labels: tuple[str, ...]) -> tuple[NodeName, ...]:
        """The nodes that the classes of some claim allow. Those of the latest question are often those of the next."""
        claims, nodes, last = inquiry.claims, inquiry.nodes, self._last
        is_open = any(each.may_be_anywhere for each in claims)
        if is_open and last is not None and last.is_about(inquiry, labels):
            return last.told
        there = (node for each in sorted(inquiry.names) if (node := nodes.get(each)))
        found = tuple(node_name(node, labels) for node in there if is_open or any(each.is_for(node) for each in claims))
        if is_open:
            self._last = _Nodes(nodes, inquiry.names, labels, found)
        return found

    def _shared(self, unsuitable: Mapping[str, Printable], names: frozenset[str]) -> ControllerAnswer:
        """An answer. Equal answers about many pods are in memory once."""
        answer = ControllerAnswer(None, unsuitable, names)
        if answer != self._latest:
            self._latest = answer
        return self._latest

    def _remember_answers(self, namespace: str, found: Mapping[str, ControllerAnswer]) -> None:
        for uid in found:
            if uid not in self._heard:
                self._heard.keep(namespace, uid, _Heard(self._clock(), ""))
        answers = self._state.snapshot.answers.update(found)
        while (most := self._most_different(answers)) is not None:
            self._heard.forget_oldest(most)
        if self._heard.look_again():
            answers = Map({uid: answer for uid, answer in answers.items() if uid in self._heard})
        self._state.hear(answers)

    def _most_different(self, answers: Map[str, ControllerAnswer]) -> str | None:
        """The namespace with the most different answers, if there are too many; they are only counted if so."""
        if len(self._heard) <= _MOST_ANSWERS:
            return None
        different = {
            namespace: {id(answers.get(uid)) for uid, _ in self._heard.of_namespace(namespace)}
            for namespace in self._heard.namespaces
        }
        if len(frozenset().union(*different.values())) <= _MOST_ANSWERS:
            return None
        return max(different, key=lambda each: len(different[each]))


async def _answered(question: asyncio.Task[None]) -> None:
    """Wait for a question. It goes on if its caller leaves: others may wait for it, too."""
    await asyncio.shield(question)


def negotiated_claims(pod: Pod, snapshot: Snapshot) -> tuple[NegotiatedClaim, ...]:
    """The negotiated claims of a pod that have no allocation; none if a claim of the pod cannot be used."""
    claims = claims_of(pod, snapshot)
    return () if isinstance(claims, Blocked) else claims.negotiated


def _is_open(uid: str, snapshot: Snapshot) -> bool:
    claim = snapshot.claim(uid)
    return claim is not None and claim.claim.allocation is None
