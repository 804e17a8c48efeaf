"""Allocations by controllers: a claim is marked, its controller allocates, and the bind writes the result.

Whatever ends between the mark and the claim's status leaves a marked claim without an allocation. Such a claim is
released later (`extender.plugins.negotiation.releases`): the controller is asked to deallocate. A controller that has
written the allocation itself is asked to clear it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import product
from typing import Final

import structlog

from allocator import AllocationResult, Claim, Node, NodeSelector, NodeSelectorTerm, Requirement, allocation_reaches
from allocator.tools import Recent
from extender.cluster.controller_marks import (
    LAST_ATTEMPT,
    Mark,
    asks_to_deallocate,
    is_marked,
    is_to_deallocate,
    marked,
    next_mark,
)
from extender.cluster.objects.claims import MARK, ClaimObject, is_immediate
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.claims import ClaimWrites, ReadClaim
from extender.cluster.writes.pods import ATTEMPTS
from extender.cluster.writes.reservations import Reservation, protected
from extender.framework.bind_errors import ControllerRefusesError
from extender.framework.pods.negotiated_claims import NegotiatedClaim
from extender.kube.api import ApiError, OutcomeUnknownError, RawObject
from extender.kube.encoding import dumped
from extender.plugins.negotiation.known_controller import KnownController
from extender.plugins.negotiation.protocol import ALLOCATE, ClaimAsk, ControllerError, NegotiatedQuestion, NodeName
from extender.plugins.negotiation.questions import ParametersError, node_name, pod_name


def merged(ours: AllocationResult, theirs: AllocationResult) -> AllocationResult:
    """The devices and the configuration of both. The claim can be used on the nodes that both selectors match."""
    return replace(
        ours,
        results=(*ours.results, *theirs.results),
        configs=(*ours.configs, *theirs.configs),
        node_selector=_both(ours.node_selector, theirs.node_selector),
    )


def only_on(node: Node, allocation: AllocationResult) -> AllocationResult:
    """The allocation while the controller is asked: for one node only."""
    here = NodeSelectorTerm(match_fields=(Requirement("metadata.name", "In", (node.name,)),))
    return replace(allocation, node_selector=NodeSelector((here,)))


def is_for(allocation: AllocationResult, node: Node) -> bool:
    """Whether a node can use an allocation."""
    return allocation_reaches(allocation, node)


def _both(one: NodeSelector | None, other: NodeSelector | None) -> NodeSelector | None:
    if one is None or other is None:
        return one or other
    # A term without requirements matches no node, and so does its combination with another term.
    terms = [pair for pair in product(one.terms, other.terms) if all(map(_is_open, pair))]
    return NodeSelector(
        tuple(
            NodeSelectorTerm(
                tuple(dict.fromkeys((*a.match_expressions, *b.match_expressions))),
                tuple(dict.fromkeys((*a.match_fields, *b.match_fields))),
            )
            for a, b in terms
        )
    )


def _is_open(term: NodeSelectorTerm) -> bool:
    return bool(term.match_expressions or term.match_fields)


_MARGIN: Final = timedelta(seconds=2)
"""After an allocation has had its time, other replicas wait this much longer before they release it."""

_MOST_OWN: Final = 4096

_SPENT: Final = (
    f"metadata.annotations[{MARK}] was changed: there is no attempt after {LAST_ATTEMPT}. Make the claim anew"
)


@dataclass(slots=True)
class Allocating:
    """Has controllers allocate.

    Attributes:
        controllers: by name.
        claims: the claims of the API server.
        now: the time.
        simulation: controllers are told to allocate nothing.
    """

    controllers: Mapping[str, KnownController]
    claims: ClaimWrites
    now: Callable[[], datetime]
    simulation: bool = False
    _running: set[str] = field(default_factory=set)
    _own: Recent[str] = field(default_factory=lambda: Recent(_MOST_OWN))
    """Attempts of this process: uid of the claim, and number."""
    _held: dict[str, tuple[str, ClaimAsk, NodeName]] = field(default_factory=dict)
    """In a simulation, what controllers would have allocated: their names, by uid of the claim."""

    def has_ended(self, claim_uid: str, mark: Mark) -> bool:
        """Whether the attempt of a mark is over: it was made here and is over, or its time is."""
        if claim_uid in self._running:
            return False
        return self._own.find((claim_uid, mark.attempt)) is not None or mark.is_over(self.now())

    def held(self, controller: str) -> tuple[tuple[ClaimAsk, NodeName], ...]:
        """What a controller would have allocated in this simulation."""
        state = self.claims.state
        for uid in list(self._held):
            if not state.snapshot.held_by(uid):
                del self._held[uid]
        return tuple((ask, node) for name, ask, node in self._held.values() if name == controller)

    async def allocate(
        self, pod: Pod, node: NodeObject, claims: Sequence[NegotiatedClaim], reservations: Sequence[Reservation]
    ) -> tuple[Reservation, ...]:
        """Have controllers allocate the claims for a node; returns all reservations, with what was allocated.

        Args:
            pod: has the claims.
            node: to allocate for.
            claims: their controllers are in the settings.
            reservations: of all claims of the pod.

        Raises:
            ControllerRefusesError: a controller does not allocate.
        """
        groups: dict[str, list[NegotiatedClaim]] = defaultdict(list)
        for each in claims:
            groups[each.controller].append(each)
        made = {each.uid: each for each in reservations}
        with self._run(claims):
            about = await self._about(claims)
            for each in claims:
                made[each.uid] = await self._marked(made[each.uid], self.controllers[each.controller])
            answers = [
                self._allocated_by_controller(
                    pod, node, self.controllers[name], [about[each.uid] for each in group], made
                )
                for name, group in groups.items()
            ]
            found: dict[str, AllocationResult] = {}
            for answer in await asyncio.gather(*answers, return_exceptions=True):
                if isinstance(answer, BaseException):
                    try:
                        raise answer
                    finally:
                        del answer  # this frame is in the error's traceback from now on
                found.update(answer)
        by = {each.uid: self.controllers[each.controller] for each in claims}
        return tuple(
            self._allocated(made[each.uid], by[each.uid], found[each.uid]) if each.uid in found else each
            for each in reservations
        )

    def _allocated(self, reservation: Reservation, known: KnownController, theirs: AllocationResult) -> Reservation:
        """The reservation with what a controller has allocated.

        If the controller has written the allocation, the bind never does: the controller may clear it again.
        """
        if not self._writes_claims(known):
            return replace(reservation, allocation=merged(reservation.allocation, theirs))
        now, before = self.claims.state.snapshot.claim(reservation.uid), reservation.claim.claim.annotations
        if now is None or now.claim.allocation is None or now.claim.annotations.get(MARK) != before.get(MARK):
            raise ControllerRefusesError(f"claim {reservation.claim.key} was changed by others meanwhile")
        return replace(reservation, claim=now, allocation=now.claim.allocation, allocates=False)

    def _writes_claims(self, known: KnownController) -> bool:
        """Whether the controller itself writes what it allocates. In a simulation, no controller writes."""
        return known.writes_claims and not self.simulation

    @contextmanager
    def _run(self, claims: Sequence[NegotiatedClaim]) -> Iterator[None]:
        uids = {each.uid for each in claims}
        self._running |= uids
        try:
            yield
        finally:
            self._running -= uids

    async def _about(self, claims: Sequence[NegotiatedClaim]) -> Mapping[str, ClaimAsk]:
        """What is asked about the claims, by uid. What is missing is found before anything is written."""
        try:
            return {each.uid: await self.controllers[each.controller].about(each) for each in claims}
        except ParametersError as error:
            raise ControllerRefusesError(str(error)) from error

    async def _allocated_by_controller(
        self,
        pod: Pod,
        node: NodeObject,
        known: KnownController,
        about: Sequence[ClaimAsk],
        made: Mapping[str, Reservation],
    ) -> Mapping[str, AllocationResult]:
        """What one controller allocates, by uid of the claim."""
        marks = {each.uid: Mark.of(made[each.uid].claim.claim) for each in about}
        asks = tuple(replace(each, attempt=mark.attempt) for each in about if (mark := marks[each.uid]) is not None)
        there = node_name(node, known.labels)
        held = self.held(known.name)
        question = NegotiatedQuestion(ALLOCATE, asks, pod_name(pod), (there,), simulation=self.simulation, held=held)
        try:
            answer = await known.ask(question)
        except ControllerError as error:
            raise ControllerRefusesError(f"controller {known.name}: {error}") from error
        if answer.refused:
            raise ControllerRefusesError(f"controller {known.name}: {answer.refused}")
        for each in asks:
            if not is_for(answer.allocations[each.uid], node.node):
                text = f"has allocated claim {each} for other nodes than {node.name}"
                raise ControllerRefusesError(f"controller {known.name} {text}")
            if self.simulation:
                self._held[each.uid] = (known.name, each, there)
        return answer.allocations

    async def _marked(self, reservation: Reservation, known: KnownController) -> Reservation:
        """The reservation of a claim that is marked now.

        Raises:
            ControllerRefusesError: the claim cannot be marked, or not now.
        """
        key, claim = reservation.claim.key, reservation.claim.claim
        raw: RawObject | None = None
        until = self.now() + timedelta(seconds=known.allocation_seconds) + _MARGIN
        try:
            for _ in range(ATTEMPTS):
                if claim.uid != reservation.uid or claim.deleting or claim.allocation is not None:
                    raise ControllerRefusesError(f"claim {key} was changed by others meanwhile")
                if is_marked(claim):
                    raise ControllerRefusesError(f"claim {key} waits until controller {known.name} has released it")
                try:
                    mark = next_mark(claim, known.name, until)
                    if mark is None:
                        raise ControllerRefusesError(f"claim {key}: {_SPENT}")
                    self._own.keep((claim.uid, mark.attempt), str(key))
                    # Its controller writes the allocation of other claims, which are not Kubernetes' to deallocate.
                    raw = await self.claims.whole(reservation.claim) if raw is None else raw
                    ours = raw if self._writes_claims(known) else protected(raw)
                    return _with(reservation, await self.claims.update(marked(ours, mark)))
                except ApiError as error:
                    if not error.is_conflict:
                        raise
                raw, claim = await self.claims.get(key)
        except (ApiError, OutcomeUnknownError) as error:
            raise ControllerRefusesError(f"claim {key} cannot be marked: {error}") from error
        raise ControllerRefusesError(f"claim {key} is changed by others all the time")


def _with(reservation: Reservation, now: ReadClaim) -> Reservation:
    """The reservation of the claim as it is now; what the search was about stays."""
    known, raw = reservation.claim, now.raw
    claim = replace(known.claim, annotations=now.claim.annotations)
    version = raw["metadata"]["resourceVersion"]
    return replace(
        reservation, claim=replace(known, claim=claim, resource_version=version, raw=dumped(raw), is_whole=True)
    )


logger = structlog.get_logger()


def controllers_of(claim: Claim, snapshot: Snapshot) -> Sequence[str]:
    """The controllers that may hold a claim: those of its device classes now, and that of its mark.

    The mark tells who has allocated when the class had another controller. But users may write any name there, or
    remove the mark.
    """
    mark, controllers = Mark.of(claim), snapshot.controllers
    classes = (each.device_class for request in claim.spec.requests for each in request.alternatives)
    names = [controllers[name] for name in classes if name in controllers]
    names += [mark.controller] if mark is not None and mark.controller else []
    return list(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class Deallocation:
    """Asks controllers to deallocate claims.

    Attributes:
        controllers: by name.
        claims: the claims of the API server.
    """

    controllers: Mapping[str, KnownController]
    claims: ClaimWrites

    def is_idle(self, claim: ClaimObject) -> bool:
        """Whether a claim is allocated by a controller that wrote the allocation, and reserved for nobody."""
        value = claim.claim
        if value.allocation is None or value.reserved_for or value.deleting or is_immediate(value):
            return False
        known = map(self.controllers.get, controllers_of(value, self.claims.state.snapshot))
        return Mark.of(value) is not None and any(each is not None and each.writes_claims for each in known)

    async def request(self, claim: ClaimObject) -> bool:
        """Ask the controller of an idle claim to deallocate it; whether it was asked. One try."""
        if asks_to_deallocate(claim.claim):
            return True
        try:
            await self.claims.update(is_to_deallocate(await self.claims.whole(claim)))
        except (ApiError, OutcomeUnknownError) as error:
            logger.info("controller not asked to deallocate", claim=str(claim.key), error=str(error))
            return False
        logger.info("controller asked to deallocate", claim=str(claim.key))
        return True
