"""The four verbs over one cluster: a snapshot in, a decision out, and what is remembered in between.

HTTP and simulation both come through here. Solves leave the event loop, over an immutable snapshot, so that health
checks and other calls are answered meanwhile. Pods that need no devices are answered at once, and so are filter calls
whose answers are known: on a busy machine the change to a thread and back takes longer than the look-up.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from allocator.tools import JSON
from extender.cluster.cluster_state import NOT_SYNCED
from extender.cluster.objects.nodes import NodeObject, parse_node_object
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.bind_errors import BindError
from extender.framework.claim_arrival import ClaimArrival
from extender.framework.cycle import policy_of, refreshed
from extender.framework.decisions.solver import Solver
from extender.framework.filter import Bounds, FilterResult, ask, filter_nodes
from extender.framework.handle import Handle
from extender.framework.metrics import Metrics
from extender.framework.open_pods import MOST_SECONDS, OpenPods
from extender.framework.pods.claims import Foreseen
from extender.framework.ranking import Decision, DecisionStore, Merits, WorthOfCpuScores, score_by_cpu, score_nodes
from extender.framework.victims import Victims
from extender.framework.wire import BindArgs, FilterArgs, PreemptArgs
from extender.kube.api import ObjectKey
from extender.kube.resources import RESOURCES
from extender.tools.fairness import WaitingBudget
from extender.tools.faults import Faults, RefusedError
from extender.tools.offload import Of, Offload, in_thread
from extender.tools.verb_priority import VerbPriority

_SOLVING_SHARE = 0.8
"""The share of a verb's time for the search. The rest is for reading, writing and the change between threads."""

SEARCH_SHARE: Final = 0.1
"""Of each second that a scheduler may wait for searches at hard nodes that end in vain, for all namespaces together."""

_SYNC_SHARE: Final = 0.5
"""The share of a verb's time for which calls, all of them together, wait for the first lists."""

_SYNC_POLL_SECONDS: Final = 0.02

_MOST_NAMES = 10_000
"""At most this number of nodes is looked up on the event loop. For unknown nodes this takes up to 10 ms."""


class Service:
    """Decides what a kube-scheduler asks about a cluster.

    Args:
        handle: knows the cluster that is decided about. Its background tasks are told of what filter has answered; the
            caller must run them.
        metrics: count what the verbs answer.
        verbs: is told when verbs run.
        off_loop: where verbs are solved.
    """

    def __init__(self, handle: Handle, metrics: Metrics, verbs: VerbPriority, off_loop: Offload = in_thread) -> None:
        scheduling = handle.settings.scheduling
        self.state, self.solver = handle.state, handle.solver
        self._kept, self._decider = handle.kept, handle.decider
        self.binder = handle.binder
        self._plugins = handle.binder.plugins
        self.background = handle.background
        self.metrics = metrics
        self._solving_seconds = scheduling.deadline_seconds * _SOLVING_SHARE
        self._most = scheduling.most_nodes
        self._verbs = verbs
        self._off_loop = off_loop
        self._decisions = DecisionStore()
        self._worth_of_cpu_scores = WorthOfCpuScores()
        self._open_pods = OpenPods(
            self.state, self.binder.decided, self.binder.node_of, partial(policy_of, default=self.solver.policy)
        )
        self._search_budget = WaitingBudget(SEARCH_SHARE)
        self._claim_arrival = ClaimArrival(self.state, handle.background.asked.note_early)
        self._sync_patience = _SYNC_SHARE * scheduling.deadline_seconds
        """How many seconds calls may still wait for the first lists, all of them together."""
        self.is_stopping = False

    @property
    def faults(self) -> Faults:
        """Collects unforeseen errors, each with its pod."""
        return self.solver.faults

    @property
    def not_ready(self) -> str:
        """Why pods with devices can't be decided now; empty if they can."""
        return "stopping" if self.is_stopping else self.state.not_ready

    def stop(self) -> None:
        """Say from now on that we are not ready; calls are still answered."""
        self.is_stopping = True

    async def finish(self, seconds: float) -> dict[str, int]:
        """Let binds and background tasks come to their end, also binds whose callers have given up.

        Returns:
            how much of each has not ended in time.
        """
        binds, tasks = await asyncio.gather(self.binder.finish(seconds), self.background.finish(seconds))
        return {"unfinished_binds": binds, "unfinished_tasks": tasks}

    async def close(self) -> None:
        """Close the connections of plugins. A later call opens new ones."""
        for each in self._plugins:
            await each.close()

    def summary(self) -> dict[str, int]:
        """The numbers of objects, for people."""
        snapshot = self.state.snapshot
        return {
            "nodes": len(snapshot.nodes),
            "slices": len(snapshot.inventory.slices),
            "pools": len(snapshot.inventory.pools),
            "deviceClasses": len(snapshot.classes),
            "claims": len(snapshot.claims),
            "podsWithDevices": len(snapshot.pods),
        }

    def seen(self) -> dict[str, int]:
        """Up to which revision everything of each kind is known, by the kind's plural."""
        return {resource.plural: self.state.seen(resource) for resource in RESOURCES.values()}

    async def filter(self, args: FilterArgs) -> FilterResult:
        """Which nodes will do. Nothing follows from the answer if the pod does not exist.

        Raises:
            RefusedError: the cluster is not known well enough.
            TimeoutError: time was up before any node was found.
            InvalidObjectError: one of the nodes that were sent.
        """
        pod = args.pod
        self._verbs.calls += 1
        if not pod.needs_devices:
            self._decisions.keep(Decision(pod, Merits()))
            return FilterResult(args.names)
        try:
            self._verbs.running += 1
            return await self._filter(args)
        finally:
            self._verbs.running -= 1

    async def _filter(self, args: FilterArgs) -> FilterResult:
        """Filter for a pod that needs devices."""
        pod, solver = args.pod, self._for_call()
        await self._first_sync()
        await self._open_pods.wait_for_volumes(pod)
        is_real = not self.state.is_made_up(pod)
        snapshot, result, is_foreseen = await self._decided(args, solver)
        if is_real and result.passed:
            until = asyncio.get_running_loop().time() + MOST_SECONDS
            while (scarce := self._open_pods.scarce(pod, result.merits)) is not None:
                if not await self._open_pods.wait_for_devices(scarce, until):
                    result = self._open_pods.beside(scarce, result)
                    break
                snapshot, result, is_foreseen = await self._decided(args, solver, again=is_foreseen)
        self._note(args, result)
        if is_real:
            if result.passed:
                self._open_pods.add(pod, result.merits)
            self.background.note(args, result, snapshot)
        return result

    async def _first_sync(self) -> None:
        """Wait while this process starts. Its scheduler would try a pod that is refused only after a longer backoff."""
        while self.state.not_ready == NOT_SYNCED and self._sync_patience > 0.0:
            self._sync_patience -= _SYNC_POLL_SECONDS
            await asyncio.sleep(_SYNC_POLL_SECONDS)

    async def _decided(
        self, args: FilterArgs, solver: Solver, *, again: bool = False
    ) -> tuple[Snapshot, FilterResult, bool]:
        """The present snapshot, what is decided on it, and whether that was foreseen: claims are not made yet.

        Args:
            args: of the call.
            solver: for as long as the call has time.
            again: this call has foreseen it before.
        """
        snapshot, result = await self._decided_now(args, solver)
        if not result.is_blocked or self.state.is_made_up(args.pod):
            return snapshot, result, False
        if await self._claim_arrival.wait(args.pod, snapshot):
            return *await self._decided_now(args, solver), False
        now = self.state.known()
        found = self._claim_arrival.foresee(args.pod, now, again=again)
        if found is None:
            return snapshot, result, False
        bounds = Bounds(solver.until, self._most(len(args.names)), self.binder.late)
        search = partial(self._filtered_foreseen, found, args, now, solver)
        return now, await self._search(args.pod, search, bounds), True

    async def _decided_now(self, args: FilterArgs, solver: Solver) -> tuple[Snapshot, FilterResult]:
        """The present snapshot, and what is decided on it."""
        snapshot = self.state.known()
        for each in self._plugins:
            if any(getattr(snapshot, name) for name in each.of_cluster):
                sent = None if args.nodes is None else partial(_read_nodes, args.names, args.nodes)
                await each.before(refreshed(args.pod, snapshot), args.names, sent, in_verb=True)
                snapshot = self.state.known()
        return snapshot, await self._filtered(args, snapshot, solver)

    def _filtered_foreseen(
        self, found: Foreseen, args: FilterArgs, snapshot: Snapshot, solver: Solver, bounds: Bounds
    ) -> FilterResult:
        decider = self._decider
        decider.follow(snapshot)
        pod, world = found
        return filter_nodes(pod, args.names, world, solver, decider=decider, sent=args.nodes, bounds=bounds)

    async def prioritize(self, args: FilterArgs) -> Sequence[int]:
        """A score for every node, in the order asked. If filter was not asked about the pod, its work is done here.

        Raises:
            RefusedError, TimeoutError, InvalidObjectError: as `filter`.
        """
        try:
            self._verbs.running += 1
            return await self._prioritize(args)
        finally:
            self._verbs.running -= 1

    async def _prioritize(self, args: FilterArgs) -> Sequence[int]:
        policy = policy_of(args.pod, self.solver.policy)
        if policy is None or not args.pod.needs_devices:
            return await self._scores_without_devices(args)
        known = self._decisions.of(args.pod.uid)
        merits = known.merits if known and known.merits else None
        if merits is None:
            result = await self._filtered(args, self.state.known(), self._for_call())
            self._note(args, result)
            merits = result.merits
        return score_nodes(args.names, merits, policy)

    async def _scores_without_devices(self, args: FilterArgs) -> Sequence[int]:
        """Scores for a pod without devices: its CPU may keep other pods from devices."""
        snapshot, solver = self.state.snapshot, self.solver
        is_known = solver.policy.weighs_leftover and snapshot.others is not None and not self.not_ready
        if not is_known or not self._worth_of_cpu_scores.is_due(args.pod, args.names):
            return [0] * len(args.names)
        call = partial(score_by_cpu, args.pod, args.names, snapshot, self._for_call(), self._decider)
        scores = await self._off_loop(Of(args.pod.namespace, call))
        self._worth_of_cpu_scores.note(scores)
        return scores

    async def preempt(self, args: PreemptArgs) -> Mapping[str, Victims]:
        """Whom to evict, per node that this makes room on.

        Raises:
            RefusedError: the cluster is not known well enough.
            TimeoutError: time was up.
        """
        if not args.pod.needs_devices:
            return args.victims
        try:
            self._verbs.running += 1
            return await self._preempt(args)
        finally:
            self._verbs.running -= 1

    async def _preempt(self, args: PreemptArgs) -> Mapping[str, Victims]:
        self.state.known()  # refuses if the cluster is not known well enough
        await self._claim_arrival.wait_for_all(args.pod)
        pod, solver = refreshed(args.pod, self.state.known()), self._for_call()
        if is_there := not self.state.is_made_up(pod):
            await self.background.before_preempt(pod, args.victims, self.state.snapshot)
        snapshot = self.state.known()
        pod = refreshed(args.pod, snapshot)
        choice = partial(solver.plugins.post_filter, pod, args.victims, snapshot, solver)
        found = await self._off_loop(Of(pod.namespace, choice))
        return await self.background.allowed(pod, found) if is_there else found

    async def bind(self, args: BindArgs) -> None:
        """Allocate, reserve and bind; see `extender.framework.bind.bind`.

        Raises:
            RefusedError: the pod is not bound, and why.
        """
        self._verbs.calls += 1
        known, key = self._decisions.of(args.uid), ObjectKey(args.namespace, args.name)
        seen, loop = known.pod if known else None, asyncio.get_running_loop()
        half, until = (loop.time() + share * self.binder.times.deadline for share in (0.5, 1.0))
        try:
            try:
                await self.binder.bind(key, args.uid, args.node, seen=seen, until=until)
            except BindError:
                # What is kept is in the way at once. A bind that took long has failed for another reason.
                if loop.time() > half or not self.background.make_way(args.uid):
                    raise
                await self.binder.bind(key, args.uid, args.node, seen=seen, until=until)
        except BindError as error:
            self.background.note_bind_failed(args.uid, args.node, error)
            raise RefusedError(str(error)) from error
        self._decisions.drop(args.uid)

    def _note(self, args: FilterArgs, result: FilterResult) -> None:
        """Remember a result for prioritize and bind, and count it."""
        self._decisions.keep(Decision(args.pod, result.merits))
        self.metrics.verbs.filtered(
            passed=len(result.passed),
            failed=len(result.failed),
            unresolvable=len(result.unresolvable),
            steps=result.steps,
        )

    async def _filtered(self, args: FilterArgs, snapshot: Snapshot, solver: Solver) -> FilterResult:
        """Filter on the event loop if all is known; in a thread if nodes have to be examined, searched or weighed."""
        pod, decider = refreshed(args.pod, snapshot), self._decider
        policy = policy_of(pod, solver.policy)
        bounds = Bounds(solver.until, self._most(len(args.names)), self.binder.late)
        is_long = args.nodes is not None or len(args.names) > _MOST_NAMES
        is_long |= policy is not None and policy.weighs_leftover and solver.is_learning(pod, snapshot)
        is_long = is_long or solver.plugins.are_slow(pod, snapshot, solver)
        if is_long or snapshot.nominated or pod.nominated_node or not decider.follow_at_once(snapshot):
            return await self._search(pod, partial(self._filtered_anew, pod, args, snapshot, solver), bounds)
        question = ask(pod, args.names, snapshot, solver, decider, bounds=bounds)
        if isinstance(question, FilterResult):
            return question
        found = question.at_hand()
        if isinstance(found, FilterResult):
            return found
        known = found
        return await self._search(pod, lambda bounds: replace(question, bounds=bounds).result(known), bounds)

    def _filtered_anew(
        self, pod: Pod, args: FilterArgs, snapshot: Snapshot, solver: Solver, bounds: Bounds
    ) -> FilterResult:
        world, decider = self._kept.world_of(pod, snapshot, solver)
        return filter_nodes(pod, args.names, world, solver, decider=decider, sent=args.nodes, bounds=bounds)

    async def _search(self, pod: Pod, work: Callable[[Bounds], FilterResult], bounds: Bounds) -> FilterResult:
        """Filter in a thread, with the patience for hard nodes that the pod's namespace has left."""
        clock, budget = self.solver.clock, self._search_budget
        began = clock()
        result = None
        try:
            patient = partial(work, replace(bounds, patience=budget.left(pod.namespace, began)))
            result = await self._off_loop(Of(pod.namespace, patient))
        finally:
            in_vain = clock() - began if result is None else result.in_vain
            if in_vain:
                budget.spend(pod.namespace, in_vain)
        return result

    def _for_call(self) -> Solver:
        """The allocator for one call that begins now: whatever is done for it, it has this time."""
        return self.solver.for_call(self._solving_seconds)


def _read_nodes(names: Sequence[str], nodes: Mapping[str, Mapping[str, JSON]]) -> Mapping[str, NodeObject]:
    return {name: parse_node_object(nodes[name]) for name in names}
