"""Releases: what controllers have allocated, and what they were asked, ends when no pod needs it any more.

A marked claim without an allocation is released by its controller, and its mark ends. This one rule covers all ends of
a negotiated claim: its pod is gone, a bind was undone, a process has ended between the mark and the claim's status, or
the claim is deleted. The mark counts one up first. So an allocation that is still on its way is ignored by the
controller, and a bind that still runs is refused by the API server.

PodSchedulingContexts that are done are deleted, and claims that nobody needs are deallocated.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog

from allocator.tools import Recent
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys
from extender.cluster.controller_marks import LAST_ATTEMPT, Mark, is_marked, marked
from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import MARK, ClaimObject
from extender.cluster.objects.scheduling_contexts import SchedulingContext
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.claims import ClaimWrites
from extender.cluster.writes.reservations import unprotected
from extender.framework.bound_pods import needs_claims
from extender.framework.pods.claims import named_claims
from extender.framework.task import UNTIL_NEWS, BackgroundTask, ControllerWork
from extender.kube.api import ApiError, ObjectKey, OutcomeUnknownError
from extender.kube.encoding import dumped
from extender.kube.resources import PODS
from extender.plugins.negotiation.allocating import Deallocation, controllers_of
from extender.plugins.negotiation.known_controller import KnownController
from extender.plugins.negotiation.negotiation import Negotiation
from extender.plugins.negotiation.protocol import ControllerError
from extender.plugins.negotiation.questions import release
from extender.plugins.negotiation.scheduling_contexts import Contexts
from extender.tools.faults import Faults

logger = structlog.get_logger()

_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
"""Pauses between tries to release a claim. Each failed try doubles the pause."""

_MOST_AT_ONCE: Final = 16
"""Claims that one controller releases at the same time."""

_MOST_LEFT: Final = 4096

_OVERTAKES_ALL: Final = 10**12
"""The attempt after a mark that cannot be read: higher than any that was counted."""


class _RefusedError(Exception):
    """A controller does not release a claim; the text names the controller, and says why."""


@dataclass(frozen=True, slots=True)
class _Pause:
    """A pause: when to try again, by the clock, and the pause after the next failure."""

    until: float = 0.0
    seconds: float = _PAUSE_SECONDS


class ControllerReleases(BackgroundTask):
    """Releases marked claims that have no allocation.

    Args:
        state: the cluster.
        claims: the claims of the API server.
        negotiation: knows the controllers, and which claims are being allocated.
        clock: measures durations, in seconds.
        faults: gets unexpected errors, each with its claim.
        on_released: told the controller of each claim that is released.
    """

    def __init__(
        self,
        state: ClusterState,
        claims: ClaimWrites,
        negotiation: Negotiation,
        clock: Callable[[], float],
        faults: Faults,
        on_released: Callable[[str], None],
    ) -> None:
        self._state = state
        self._claims = claims
        self._negotiation = negotiation
        self._clock = clock
        self._on_released = on_released
        self._seen = -1
        self._marked: dict[ObjectKey, _Pause] = {}
        self._left: Recent[str] = Recent(_MOST_LEFT)
        """By uid of the claim: its mark, once all controllers of the settings have released it, and another is left."""
        self._work = ControllerWork[ObjectKey](faults, _MOST_AT_ONCE)

    @property
    def unfinished(self) -> Sequence[asyncio.Task[None]]:
        """Releases."""
        return self._work.running

    @property
    def idle_seconds(self) -> float:
        """Until claims change, if none is to be released."""
        return 0.0 if self._marked else UNTIL_NEWS

    async def tick(self) -> None:
        """Begin to release what is due. A controller that is slow holds up no other task and no other controller."""
        if self._state.not_ready:
            return
        self._follow()
        for key, pause in list(self._marked.items()):
            claim = self._state.snapshot.claims.get(key)
            if claim is None or key in self._work or self._clock() < pause.until or not self._is_idle(claim):
                continue
            names = controllers_of(claim.claim, self._state.snapshot)
            known = self._negotiation.controllers
            if self._work.has_room(names) and not any(name in known and known[name].is_paused for name in names):
                self._work.begin(key, f"claim {key}", names, partial(self._release, key, claim))

    def _follow(self) -> None:
        """Find the marked claims without an allocation among those that have changed."""
        snapshot = self._state.snapshot
        changed = self._state.since(self._seen).keys(Topic.CLAIM)
        self._seen = snapshot.version
        for key in [*snapshot.claims, *self._marked] if changed is None else changed:
            claim = snapshot.claims.get(key)
            if claim is not None and claim.claim.allocation is None and is_marked(claim.claim):
                self._marked.setdefault(key, _Pause())
            else:
                self._marked.pop(key, None)

    def _is_idle(self, claim: ClaimObject) -> bool:
        """Whether no bind is under way for the claim, here or, as far as is known, in another replica."""
        uid, mark = claim.claim.uid, Mark.of(claim.claim)
        if mark is None or uid in self._state.snapshot.assumed:
            return False
        return self._negotiation.has_ended(uid, mark)

    async def _release(self, key: ObjectKey, claim: ClaimObject) -> None:
        problem = await self._problem(claim)
        if not problem:
            self._marked.pop(key, None)
            return
        logger.info("claim not released by its controller", claim=str(key), error=problem)
        pause = self._marked.get(key)
        if pause is not None:  # the claim is there, and marked
            self._marked[key] = _Pause(self._clock() + pause.seconds, min(2 * pause.seconds, _LONGEST_PAUSE_SECONDS))

    async def _problem(self, claim: ClaimObject) -> str:
        """Release a claim; why that was not possible, empty if it was."""
        names, mark = controllers_of(claim.claim, self._state.snapshot), Mark.of(claim.claim)
        if not names:
            return "neither its mark nor its device classes name a controller"
        if mark is None or not mark.controller:
            mark = Mark(names[0], _OVERTAKES_ALL, "")
        mark, controllers = mark.releasing(), self._negotiation.controllers
        missing = next((f"controller {name} is not in the settings" for name in names if name not in controllers), "")
        if missing and self._left.find(claim.claim.uid) == str(mark):
            return missing
        try:
            for name in names:
                if name in controllers:
                    claim, mark = await self._released_by_controller(claim, mark, controllers[name])
            if missing:
                self._left.keep(claim.claim.uid, str(mark))
                return missing
            await self._marked_as(claim, mark.released())
        except _RefusedError as error:
            return str(error)
        except ApiError as error:
            return "" if error.is_missing else str(error)
        except OutcomeUnknownError as error:
            return str(error)
        logger.info("claim released by its controller", claim=str(claim.key), controller=", ".join(names))
        for name in names:
            self._on_released(name)
        return ""

    async def _released_by_controller(
        self, claim: ClaimObject, mark: Mark, known: KnownController
    ) -> tuple[ClaimObject, Mark]:
        """Ask a controller for a release; returns the claim and the mark of the attempt that has released it.

        Raises:
            _RefusedError: the controller does not release the claim.
        """
        uid = claim.claim.uid
        try:
            for _ in range(2):
                claim = await self._marked_as(claim, mark)
                latest = (await known.ask(release(claim, mark))).overtaken.get(uid)
                if latest is None:
                    return (await self._reread(claim, mark) if known.writes_claims else claim), mark
                if latest > LAST_ATTEMPT:
                    raise _RefusedError(f"controller {known.name}: it tells attempt {latest}, which nobody has made")
                mark = replace(mark, attempt=min(latest + 1, LAST_ATTEMPT))  # somebody has changed the mark
        except ControllerError as error:
            raise _RefusedError(f"controller {known.name}: {error}") from error
        raise _RefusedError(f"controller {known.name}: each time, it tells a later attempt")

    async def _reread(self, claim: ClaimObject, mark: Mark) -> ClaimObject:
        """A claim as it is after its controller has changed it.

        Raises:
            _RefusedError: its mark is another one now.
        """
        now = await self._claims.get(claim.key)
        if now.claim.uid != claim.claim.uid or now.claim.annotations.get(MARK) != str(mark):
            raise _RefusedError("the claim was changed by others meanwhile")
        version = now.raw["metadata"]["resourceVersion"]
        return replace(claim, claim=now.claim, resource_version=version, raw=dumped(now.raw), is_whole=True)

    async def _marked_as(self, claim: ClaimObject, mark: Mark) -> ClaimObject:
        """The claim with a mark; refused if the claim has changed since it was read."""
        if claim.claim.annotations.get(MARK) == str(mark):
            return claim
        raw = await self._claims.whole(claim)
        now = await self._claims.update(marked(unprotected(raw) if mark.is_released else raw, mark))
        version = now.raw["metadata"]["resourceVersion"]
        return replace(claim, claim=now.claim, resource_version=version, raw=dumped(now.raw), is_whole=True)


_LOOK_SECONDS: Final = 1.0
_IDLE_SECONDS: Final = 10.0
"""A claim is allocated without a pod for this long before it is deallocated: a pod may be on its way."""


class SchedulingContexts(BackgroundTask):
    """Deletes contexts that are done, and has controllers deallocate claims that no pod needs.

    Args:
        contexts: the contexts.
        deallocation: asks controllers to deallocate.
        clock: measures durations, in seconds.
    """

    def __init__(self, contexts: Contexts, deallocation: Deallocation, clock: Callable[[], float]) -> None:
        self._contexts = contexts
        self._deallocation = deallocation
        self._state = contexts.state
        self._clock = clock
        self._again = 0.0
        self._seen = -1
        self._idle: dict[ObjectKey, float] = {}

    @property
    def idle_seconds(self) -> float:
        """Until the next look."""
        return self._again - self._clock()

    async def tick(self) -> None:
        """Look at contexts and claims, once a second."""
        if self._state.not_ready or self._clock() < self._again:
            return
        self._again = self._clock() + _LOOK_SECONDS
        snapshot = self._state.snapshot
        for each in snapshot.objects(SchedulingContext).values():
            if self._is_done(each, snapshot):
                await self._removed(each)
        self._follow(snapshot)
        await self._deallocate_idle(snapshot)

    def _is_done(self, context: SchedulingContext, snapshot: Snapshot) -> bool:
        pod = snapshot.pods.get(context.key)
        if pod is None or pod.uid != context.pod_uid:
            return self._state.seen(PODS) >= context.revision
        if pod.is_finished:
            return True
        return bool(pod.node_name) and all(
            claim.claim.allocation is not None and claim.claim.is_reserved_for(pod.uid, pod.pod_group)
            for _, claim in named_claims(pod, snapshot)
        )

    async def _removed(self, context: SchedulingContext) -> None:
        try:
            await self._contexts.writes.remove(context)
        except (ApiError, OutcomeUnknownError) as error:
            if not (isinstance(error, ApiError) and (error.is_missing or error.is_conflict)):
                logger.warning("scheduling context not deleted", context=str(context.key), error=str(error))

    def _follow(self, snapshot: Snapshot) -> None:
        """Find the claims that are allocated and used by nobody, among those that have changed."""
        changed = self._state.since(self._seen).keys(Topic.CLAIM)
        self._seen = snapshot.version
        for key in [*snapshot.claims, *self._idle] if changed is None else changed:
            claim = snapshot.claims.get(key)
            if claim is not None and self._deallocation.is_idle(claim):
                self._idle.setdefault(key, self._clock())
            else:
                self._idle.pop(key, None)

    async def _deallocate_idle(self, snapshot: Snapshot) -> None:
        due = [key for key, since in self._idle.items() if since + _IDLE_SECONDS <= self._clock()]
        if not due:
            return
        # A pod that has its node may wait for other claims.
        users = (pod for pod in snapshot.pods.values() if pod.is_pending or needs_claims(pod))
        wanted = {key for pod in users for key in claim_keys(pod)}
        for key in due:
            claim = snapshot.claims.get(key)
            if claim is not None and key not in wanted and claim.claim.uid not in snapshot.assumed:
                self._idle[key] = self._clock()  # if it fails, it is tried again later
                await self._deallocation.request(claim)
