"""Immediate claims: allocated as soon as that is possible, before a pod needs them (KEP-3063, "Allocation modes").

A claim is allocated on the best node, checked, and reserved for nobody. A stand-in takes the place of the pod.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from allocator import Claim
from allocator.tools import Recent, printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import ClaimObject, is_immediate, mode_problem, priority_of
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach
from extender.cluster.writes.events import Note
from extender.cluster.writes.lease import SharedLease
from extender.framework.bind.bind import Binder
from extender.framework.bind_errors import BindError
from extender.framework.bound_pods import AT_ONCE
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.filter import Bounds, filter_nodes
from extender.framework.handle import Handle
from extender.framework.leased_work import LeasedWork, WaitingWork
from extender.framework.pods.claims import is_open, stand_in
from extender.framework.queueing_hints import queueing_hint
from extender.framework.ranking import score_nodes
from extender.framework.rejected_pods import PATIENCE, Attention, RejectedPod
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import ObjectKey, OutcomeUnknownError, WriteRefusedError
from extender.tools.fairness import Backlog, ReportingMemory
from extender.tools.offload import Of, Offload

T = TypeVar("T")

SEARCH_SECONDS: Final = 2.0
"""The longest search for the node of one claim, by the solver's clock."""


def in_order(items: Collection[T], claim_of: Callable[[T], ClaimObject]) -> list[T]:
    """What concerns immediate claims, in the order in which the claims are allocated: the oldest first.

    Priorities order the claims of one namespace, in the places that its claims have by their age: whoever makes a claim
    writes its priority, so it counts nothing among namespaces.
    """
    own: dict[str, list[T]] = defaultdict(list)
    for each in sorted(items, key=lambda each: _turn(claim_of(each)), reverse=True):
        own[claim_of(each).key.namespace].append(each)
    oldest_first = sorted(items, key=lambda each: (claim_of(each).created, claim_of(each).key))
    return [own[claim_of(each).key.namespace].pop() for each in oldest_first]


def _turn(claim: ClaimObject) -> tuple[int, str, ObjectKey]:
    """Sorts the claims of one namespace: those with the highest priority first, then the oldest."""
    return -priority_of(claim.claim), claim.created, claim.key


@dataclass(frozen=True, slots=True)
class ImmediateClaims:
    """Allocates claims that no pod needs yet.

    Attributes:
        state: the cluster.
        decider: remembers verdicts; its solver has the policy.
        binder: writes and checks allocations.
        off_loop: where nodes are judged.
    """

    state: ClusterState
    decider: Decider
    binder: Binder
    off_loop: Offload

    def awaited(self, pod: Pod) -> Collection[str]:
        """The controllers that `allocate` waits for, by the claim's stand-in."""
        return self.binder.claims.awaited(pod)

    def forget(self, claim_uid: str) -> None:
        """Forget what controllers have said about a claim, so that they are asked again."""
        for each in self.binder.plugins:
            each.forget([claim_uid])

    async def allocate(self, claim: ClaimObject, names: Sequence[str] | None = None) -> None:
        """Allocate a claim on the best of some nodes; None: of all nodes.

        Raises:
            BindError: no node has the devices now, or others were quicker.
            WriteRefusedError, OutcomeUnknownError: a write is refused, or it is not known whether it happened.
        """
        pod, claims = stand_in(claim.claim), self.binder.claims
        for each in self.binder.plugins:
            await each.before(pod, self.state.snapshot.nodes if names is None else names)
        is_wanted = partial(self.state.has_claim, claim.claim.uid)
        search = partial(best_node, pod, names, self.state.snapshot, self.decider, is_wanted)
        node = await self.off_loop(Of(pod.namespace, search))
        there, until = replace(pod, node_name=node), claims.until()
        try:
            await claims.allocate(there, await claims.plan(there, until, self.off_loop), until)
        finally:
            self.state.give_up(there)  # a stand-in takes nothing of its node

    async def check(self, claim: ClaimObject) -> None:
        """Check an allocation that a process may have left unchecked: one that is void is taken back.

        Raises:
            BindError: the allocation was taken back, or its devices are not ready.
            WriteRefusedError, OutcomeUnknownError: it could not be taken back.
        """
        await self.binder.claims.check(claim, stand_in(claim.claim))


def best_node(
    pod: Pod, names: Sequence[str] | None, snapshot: Snapshot, decider: Decider, is_wanted: Callable[[], bool]
) -> str:
    """The node with the highest score of those that have the devices; of equal nodes, the first by name.

    Cordoned nodes are passed over: no pod could use the devices there.

    Args:
        pod: a stand-in.
        names: the nodes; None: all.
        snapshot: the cluster that the decider follows.
        decider: remembers what was decided.
        is_wanted: whether the claim is still there; if not, the search ends.

    Raises:
        BindError: there is none; the text has the reasons, counted.
    """
    solver = decider.solver
    until = solver.clock() + SEARCH_SECONDS
    nodes = (snapshot.nodes.get(name) for name in sorted(snapshot.nodes if names is None else names))
    asked = [node.name for node in nodes if node is not None and is_open(node)]
    if not asked:
        raise BindError("there is no node that is not cordoned")
    decider.follow(snapshot)
    try:
        by = solver.within(until).while_wanted(is_wanted)
        result = filter_nodes(pod, asked, snapshot, by, decider=decider, bounds=Bounds(until))
    except TimeoutError as error:
        raise BindError("out of time: the nodes were still looked at") from error
    if not result.passed:
        counts = result.unresolvable.counts() + result.failed.counts()
        raise BindError(", ".join(f"{count} {reason}" for reason, count in sorted(counts.items())))
    scores = score_nodes(result.passed, result.merits, solver.policy)
    return max(zip(scores, result.passed, strict=True), key=lambda each: each[0])[1]


IMMEDIATE_CLAIMS: Final = ObjectKey("kube-system", "dra-extender-immediate-claims")
"""The lease of the replica that allocates immediate claims."""

WAITS: Final = "ClaimNotAllocated"
INVALID: Final = "InvalidAnnotation"
_KEPT: Final = 4096

MOST_CLAIMS: Final = 1024
"""Claims that are tried in turn, in shares by namespace. Others wait until one of their namespace was tried in vain."""

REREAD_SECONDS: Final = 10.0
"""Claims that were tried in vain and made room for others are found again after this time."""


@dataclass(slots=True)
class _Waiting(WaitingWork):
    """An immediate claim that is to be allocated, or checked; its pod is a stand-in."""

    claim: ClaimObject = field(kw_only=True)


class ImmediateAllocation(BackgroundTask):
    """Looks for immediate claims and allocates each: at once, after changes that may help it, and from time to time.

    One replica does so at a time. A claim that waits for its controller holds up no other. Claims with annotations that
    contradict each other get an Event.

    Args:
        state: the cluster.
        claims: allocates a claim.
        lease: this replica holds it while it allocates.
        solver: has the clock and the faults.
        tell: writes an Event on a claim, which its stand-in names.
        now: the time.
    """

    def __init__(
        self,
        state: ClusterState,
        claims: ImmediateClaims,
        lease: SharedLease,
        solver: Solver,
        tell: Callable[[Pod, Note], None],
        now: Callable[[], datetime],
    ) -> None:
        self._state = state
        self._claims = claims
        self._solver = solver
        self._tell = tell
        self._now = now
        self._seen = state.snapshot
        self._unread: Iterator[ObjectKey] | None = None
        self._has_read = False
        self._backlog = Backlog(self._is_to_be_tried)
        self._waiting = ReportingMemory[_Waiting](MOST_CLAIMS)
        self._again = 0.0
        self._work = LeasedWork(lease, solver, claims.awaited, self._serve)
        self._told: Recent[str] = Recent(_KEPT)
        self._checked: Recent[str] = Recent(_KEPT)

    @property
    def unfinished(self) -> Sequence[asyncio.Task[None]]:
        """Allocations by controllers."""
        return self._work.running

    def on_released(self, controller: str) -> None:
        """A controller has released a claim, so it may allocate others.

        A claim that it has refused at the last moment is left out: its own release would cause the next try.
        """
        for uid, each in self._waiting.items():
            if each.heeds_changes and controller in self._claims.awaited(each.rejected.pod):
                self._claims.forget(uid)
                each.rejected.attention = Attention.NOW

    @property
    def idle_seconds(self) -> float:
        """Until claims change, if none is to be allocated, and none was forgotten."""
        is_known = self._has_read and not self._waiting.forgotten
        is_idle = is_known and not (self._waiting or self._backlog or self._work.has_lease)
        return UNTIL_NEWS if is_idle else 0.0

    async def tick(self) -> None:
        """Look for immediate claims, tell those that could not be allocated why, and allocate the due ones.

        So a question that is asked in this turn has the time of a turn for its answer, before a claim is told of it.
        """
        if self._state.not_ready:
            return
        before, snapshot = self._seen, self._state.snapshot
        reach = self._state.since(before.version)
        self._seen = snapshot
        for key in self._to_read(snapshot, reach):
            self._read(snapshot, key)
        self._backlog.offer(self._admit, AT_ONCE)
        if self._waiting:
            self._note_changes(before, snapshot, reach)
        self._tell_due()
        await self._serve_due()

    def _to_read(self, snapshot: Snapshot, reach: Reach) -> list[ObjectKey]:
        """The claims that have changed; at first, and if the changes are not known, all claims, some in each turn."""
        now, is_short = self._solver.clock(), bool(self._waiting.forgotten) and not self._backlog
        changed = reach.keys(Topic.CLAIM)
        if self._unread is None or changed is None or (is_short and now >= self._again):
            self._waiting.look_again()
            self._again = now + REREAD_SECONDS
            self._unread = iter(list(snapshot.claims))
        unread = list(islice(self._unread, AT_ONCE))
        self._has_read = len(unread) < AT_ONCE
        return [*unread, *(changed or ())]

    def _read(self, snapshot: Snapshot, key: ObjectKey) -> None:
        found = snapshot.claims.get(key)
        if found is None or not found.claim.annotations:
            return
        claim, problem = found.claim, mode_problem(found.claim.annotations)
        if problem and claim.allocation is None:
            text = printable(f"the claim is not allocated: {problem}")
            self._say(found, Note(INVALID, text, of_claim=True))
        if _is_wanted(claim) and self._has_work(found):
            known = self._waiting.get(claim.uid)
            if known is None:
                self._backlog.add(key.namespace, key)
            else:
                known.claim = found

    def _admit(self, key: ObjectKey) -> bool:
        """Let a claim be tried from now on, if there is room for it or in the place of one that was tried in vain."""
        found = self._state.snapshot.claims[key]
        if not self._waiting.make_room(key.namespace, self._work.was_in_vain):
            return False
        rejected = RejectedPod(stand_in(found.claim), None, Attention.NOW)
        waiting_claim = _Waiting(f"claim {key}", rejected, self._now(), claim=found)
        self._waiting.keep(key.namespace, found.claim.uid, waiting_claim)
        return True

    def _is_to_be_tried(self, key: ObjectKey) -> bool:
        found = self._state.snapshot.claims.get(key)
        if found is None or found.claim.uid in self._waiting:
            return False
        return _is_wanted(found.claim) and self._has_work(found)

    def _has_work(self, found: ClaimObject) -> bool:
        """Whether a claim is not allocated, or its allocation was never checked by this process."""
        claim = found.claim
        if claim.deleting or claim.uid in self._state.snapshot.assumed:
            return not claim.deleting and claim.allocation is None
        if claim.allocation is None:
            return True
        return not claim.reserved_for and self._checked.find(claim.uid) != _version(found)

    def _note_changes(self, before: Snapshot, snapshot: Snapshot, reach: Reach) -> None:
        """Forget claims that need nothing any more. The others are due if a change may help, or if it is time."""
        hint, now = queueing_hint(reach, before, snapshot, self._solver.plugins), self._solver.clock()
        every = tuple(snapshot.nodes)
        for uid, each in self._waiting.items():
            found = snapshot.claim(uid)
            if found is None or not _is_wanted(found.claim) or not self._has_work(found):
                self._waiting.pop(uid)
                continue
            each.claim = found
            if each.is_due(now, is_helped=bool(each.rejected.targets(each.rejected.pod, hint, every))):
                each.rejected.attention = Attention.NOW

    async def _serve_due(self) -> None:
        due = [each for each in self._waiting.values() if each.rejected.attention is Attention.NOW]
        await self._work.turn(in_order(due, lambda each: each.claim))

    async def _serve(self, waiting_claim: _Waiting) -> None:
        uid = waiting_claim.claim.claim.uid
        found = self._state.snapshot.claim(uid)
        if found is None:
            return
        try:
            if found.claim.allocation is None:
                await self._claims.allocate(found)
            else:
                await self._claims.check(found)
        except (BindError, WriteRefusedError, OutcomeUnknownError) as error:
            waiting_claim.fail(error)
            return
        self._waiting.pop(uid)
        now = self._state.snapshot.claim(uid)
        if now is not None:
            self._checked.keep(uid, _version(now))

    def _tell_due(self) -> None:
        due = self._now() - PATIENCE
        for each in self._waiting.values():
            if each.reason and each.since <= due:
                text = printable(f"the claim waits to be allocated: {each.reason}")
                self._say(each.claim, Note(WAITS, text, of_claim=True))

    def _say(self, claim: ClaimObject, note: Note) -> None:
        """Write an Event on a claim, unless it was the last one."""
        if self._told.find(claim.claim.uid) != note.text:
            self._told.keep(claim.claim.uid, note.text)
            self._tell(stand_in(claim.claim), note)


def _is_wanted(claim: Claim) -> bool:
    return is_immediate(claim) and not mode_problem(claim.annotations)


def _version(claim: ClaimObject) -> str:
    """Names an allocation of a claim: the devices."""
    allocation = claim.claim.allocation
    return "" if allocation is None else f"{allocation.timestamp} {[each.device for each in allocation.results]}"


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task for immediate claims."""
    claims = ImmediateClaims(handle.state, handle.decider, handle.binder, handle.in_background)
    lease = handle.lease(IMMEDIATE_CLAIMS)
    return [ImmediateAllocation(handle.state, claims, lease, handle.solver, handle.tell, handle.now)]
