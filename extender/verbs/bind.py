"""Bind: allocate, reserve, check, bind; or take back what was written.

Idempotent: the scheduler repeats a call after its timeout although the first may still run, or have succeeded. A pod
has one bind at a time, and whoever calls again gets the answer of the one that runs.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from allocator.errors import AllocatorError
from allocator.outcome import Allocation
from extender.claims import Blocked, PodClaims
from extender.cluster.api import CLAIMS, ObjectKey, OutcomeUnknownError
from extender.cluster.check import clash
from extender.cluster.objects import Pod
from extender.cluster.reservation import Reservation, WriteRefusedError, is_reserved
from extender.cluster.snapshot import Snapshot
from extender.cluster.state import ClusterState
from extender.cluster.writer import Writer, check_unbound
from extender.solver import Solver
from extender.verbs.case import UNKNOWN_NODE, No, held_for_nominated, open_case

_OWN_SHARE: Final = 0.9
"""Of a call's time, after which no step begins: the answer must still get there."""


class BindError(Exception):
    """The pod is not bound, as far as we know; the scheduler is to try again."""


class ClashError(BindError):
    """Another writer gave the same devices to another claim before us; what this bind allocated is given back."""


class Binder:
    """Binds pods of one cluster.

    Args:
        deadline: seconds that a call may take, less than the scheduler's timeout. A bind that takes longer goes on,
            but posts no Binding any more: the next call carries on from what it has written.
    """

    def __init__(self, state: ClusterState, writer: Writer, solver: Solver, *, deadline: float) -> None:
        self._state = state
        self._writer = writer
        self._solver = solver
        self._deadline = deadline
        self._running: dict[str, tuple[str, asyncio.Task[BindError | None]]] = {}

    async def bind(self, key: ObjectKey, uid: str, node: str, *, seen: Pod | None = None) -> None:
        """Bind a pod to a node, with devices for its claims.

        Args:
            key: namespace and name of the pod.
            uid: of the pod; another pod of that name is not bound.
            node: name of the node.
            seen: the pod as filter was given it, if it is still known: saves asking for pods without devices.

        Raises:
            BindError: the pod is not bound to the node, and why.
        """
        now = asyncio.get_running_loop().time()
        until, own = now + self._deadline, now + self._deadline * _OWN_SHARE
        while uid in self._running:
            target, task = self._running[uid]
            error = await _answer(task, until)
            if target == node or not task.done():
                _raise(error)
                return
        task = asyncio.create_task(self._outcome(key, uid, node, seen, own))
        self._running[uid] = (node, task)
        task.add_done_callback(lambda _: self._running.pop(uid, None))
        _raise(await _answer(task, until))

    async def _outcome(self, key: ObjectKey, uid: str, node: str, seen: Pod | None, until: float) -> BindError | None:
        """The bind's error as a value: perhaps nobody waits for it any more."""
        try:
            await self._bind(key, uid, node, seen, until)
        except BindError as error:
            return error
        except (WriteRefusedError, OutcomeUnknownError) as error:
            return BindError(str(error))
        return None

    async def _bind(self, key: ObjectKey, uid: str, node: str, seen: Pod | None, until: float) -> None:
        pod = self._state.snapshot.pod(uid) or seen or await self._writer.read_pod(key, uid)
        if pod.node_name == node:
            return
        check_unbound(pod)
        if not pod.needs_devices:
            await self._writer.bind(replace(pod, resource_version=""), node)
            return
        made: list[Reservation] = []
        try:
            await self._reserve(self._decide(pod, node), made, until)
            await self._writer.bind(pod, node)
        except (WriteRefusedError, ClashError) as error:
            left = await self._undo(pod, node, made)
            if left is None:
                return
            if left:
                raise type(error)("; ".join((str(error), *left))) from error
            raise

    def _decide(self, pod: Pod, node_name: str) -> tuple[Reservation, ...]:
        """What is to be written, with new allocations in flight from here on. Nothing else runs meanwhile."""
        if self._state.not_ready:
            raise BindError(f"not ready: {self._state.not_ready}")
        snapshot = self._state.snapshot
        node = snapshot.nodes.get(node_name)
        if node is None:
            raise BindError(f"node {node_name}: {UNKNOWN_NODE}")
        case = open_case(pod, held_for_nominated(pod, snapshot, self._solver), self._solver)
        if isinstance(case, Blocked):
            raise BindError(case.reason)
        try:
            verdict = case.at(node)
        except AllocatorError as error:
            raise BindError(str(error)) from error
        if isinstance(verdict, No):
            raise BindError(f"node {node_name}: {verdict.reason}")
        reservations = tuple(_reservations(pod, case.claims, verdict, snapshot))
        for each in reservations:
            if each.allocates:
                self._state.assume(each.uid, each.allocation, pod.uid)
        return reservations

    async def _reserve(self, reservations: Sequence[Reservation], made: list[Reservation], until: float) -> None:
        """Write them one by one, and check all. `made` gets those that were written."""
        revision = 0
        try:
            for each in reservations:
                written = await self._writer.reserve(each)
                revision = max(revision, written.revision)
                made.append(each)
        finally:
            for never_begun in reservations[len(made) + 1 :]:
                self._state.forget(never_begun.uid)
        try:
            async with asyncio.timeout_at(until):
                await self._state.passed(CLAIMS, revision)
        except TimeoutError as error:
            raise BindError("out of time: what others have written to claims is not known yet") from error
        self._check(made)
        if asyncio.get_running_loop().time() >= until:
            raise BindError("out of time: the claims are reserved, the pod is not bound yet")

    def _check(self, made: list[Reservation]) -> None:
        """Compare with what others have written to claims before us. A claim that a bound pod uses was checked then."""
        snapshot = self._state.snapshot
        for index, each in enumerate(made):
            if _is_in_use(each, snapshot):
                continue
            found = clash(snapshot, each.uid)
            if found:
                made[index] = replace(each, frees=True)
                raise ClashError(f"claim {each.claim.key} was allocated after others: {found}")

    async def _undo(self, pod: Pod, node: str, made: Sequence[Reservation]) -> list[str] | None:
        """Take back what was made; returns what could not be, or None if the pod turns out to be bound to the node."""
        if not made:
            return []
        try:
            bound = await self._writer.fence(pod)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            return [f"claims are not released: {error}"]
        if bound:
            return None if bound == node else [f"claims are not released: the pod is bound to node {bound}"]
        left = []
        for each in made:
            try:
                await self._writer.release(each)
            except (WriteRefusedError, OutcomeUnknownError) as error:
                left.append(f"claim {each.claim.key} is not released: {error}")
        return left


def _raise(error: BindError | None) -> None:
    if error is not None:
        raise error


async def _answer(task: asyncio.Task[BindError | None], until: float) -> BindError | None:
    """The task's answer, or that there is none yet. The task goes on, whoever stops waiting."""
    done, _ = await asyncio.wait({task}, timeout=until - asyncio.get_running_loop().time())
    return task.result() if done else BindError("the bind of this pod is still running")


def _is_in_use(reservation: Reservation, snapshot: Snapshot) -> bool:
    claim = snapshot.claim(reservation.uid)
    consumers = () if claim is None else claim.claim.reserved_for
    users = (snapshot.pod(consumer.uid) for consumer in consumers)
    return any(user is not None and user.node_name for user in users)


def _reservations(pod: Pod, claims: PodClaims, decided: Allocation, snapshot: Snapshot) -> Iterator[Reservation]:
    """What is there already first, then what is to be allocated."""
    for each in claims.allocated:
        if each.claim.allocation is not None:
            resumed = each.claim.uid in snapshot.in_flight
            frees = resumed or is_reserved(each.claim, pod.uid)
            yield Reservation(each, pod, each.claim.allocation, allocates=resumed, frees=frees)
    for each, allocation in zip(claims.pending, decided.results, strict=True):
        yield Reservation(each, pod, allocation, allocates=True, frees=True)
