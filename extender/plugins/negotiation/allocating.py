"""Allocations by controllers: a claim is marked, its controller allocates, and the bind writes the result.

Whatever ends between the mark and the claim's status leaves a marked claim without an allocation. Such a claim is
released later (`extender.plugins.negotiation.releases`): the controller is asked to deallocate.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from allocator import AllocationResult
from allocator.tools import Recent
from extender.cluster.controller_marks import LAST_ATTEMPT, Mark, is_marked, marked, next_mark
from extender.cluster.objects.claims import MARK
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.claims import ClaimWrites, ReadClaim
from extender.cluster.writes.pods import ATTEMPTS
from extender.cluster.writes.reservations import Reservation, protected
from extender.framework.bind_errors import ControllerRefusesError
from extender.framework.pods.negotiated_claims import NegotiatedClaim
from extender.kube.api import ApiError, OutcomeUnknownError, RawObject
from extender.kube.encoding import dumped
from extender.plugins.negotiation.known_controller import KnownController
from extender.plugins.negotiation.merging import is_for, merged
from extender.plugins.negotiation.parameters import ParametersError
from extender.plugins.negotiation.protocol import ALLOCATE, ClaimAsk, ControllerError, NegotiatedQuestion, NodeName
from extender.plugins.negotiation.questions import node_name, pod_name

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
