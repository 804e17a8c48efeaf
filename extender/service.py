"""The four verbs over one cluster: a snapshot in, a decision out, and what is remembered in between.

HTTP and simulation both come through here. Solves leave the event loop, over an immutable snapshot, so that health
checks and other calls are answered meanwhile; pods that need no devices are answered at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar, TypeVar

import anyio.to_thread

from extender.cluster.api import ObjectKey
from extender.cluster.objects import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.state import ClusterState
from extender.metrics import Metrics
from extender.solver import Solver
from extender.verbs.bind import Binder, BindError
from extender.verbs.decisions import Decision, DecisionStore
from extender.verbs.filter import FilterResult, filter_nodes
from extender.verbs.preempt import Victims, choose_victims
from extender.verbs.prioritize import score_nodes
from extender.wire import BindArgs, FilterArgs, PreemptArgs

_T = TypeVar("_T")

_SOLVING_SHARE = 0.8
"""Of the time for a verb; the rest is for reading, writing, and handing over."""


class RefusedError(Exception):
    """The call can't be decided; the scheduler is to try again later.

    Attributes:
        code: by which programs tell the error; empty for those that are for people only.
    """

    code: ClassVar[str] = ""


class Service:
    """Decides what a kube-scheduler asks about a cluster.

    Args:
        deadline_seconds: for one verb, everything included.
    """

    def __init__(
        self,
        state: ClusterState,
        solver: Solver,
        binder: Binder,
        metrics: Metrics,
        *,
        deadline_seconds: float,
    ) -> None:
        self._state = state
        self._solver = solver
        self._binder = binder
        self.metrics = metrics
        self._solving_seconds = deadline_seconds * _SOLVING_SHARE
        self._decisions = DecisionStore()
        self._stopping = False

    @property
    def not_ready(self) -> str:
        """Why pods with devices can't be decided now; empty if they can."""
        return "stopping" if self._stopping else self._state.not_ready

    def stop(self) -> None:
        """Say from now on that we are not ready; calls are still answered."""
        self._stopping = True

    def summary(self) -> dict[str, int]:
        """How much there is of what."""
        snapshot = self._state.snapshot
        return {
            "nodes": len(snapshot.nodes),
            "slices": len(snapshot.inventory.slices),
            "pools": len(snapshot.inventory.pools),
            "deviceClasses": len(snapshot.classes),
            "claims": len(snapshot.claims),
            "podsWithDevices": len(snapshot.pods),
        }

    async def filter(self, args: FilterArgs) -> FilterResult:
        """Which nodes will do.

        Raises:
            RefusedError: the cluster is not known well enough.
            TimeoutError: time was up before any node was found.
            InvalidObjectError: one of the nodes that were sent.
        """
        pod = args.pod
        if not pod.needs_devices:
            self._decisions.keep(Decision(pod, {}))
            return FilterResult(args.names)
        result = await self._solve(pod, filter_nodes, args.names, sent=args.nodes)
        self._decisions.keep(Decision(pod, result.decisions))
        self.metrics.filtered(
            passed=len(result.passed),
            failed=len(result.failed),
            unresolvable=len(result.unresolvable),
            steps=result.steps,
        )
        return result

    async def prioritize(self, args: FilterArgs) -> list[tuple[str, int]]:
        """A score for every node: what filter found, or would find if it was not asked.

        Raises:
            RefusedError, TimeoutError, InvalidObjectError: as `filter`.
        """
        if not args.pod.needs_devices:
            return score_nodes(args.names, {}, self._solver.policy)
        known = self._decisions.of(args.pod.uid)
        decisions = known.allocations if known else (await self.filter(args)).decisions
        return score_nodes(args.names, decisions, self._solver.policy)

    async def preempt(self, args: PreemptArgs) -> Mapping[str, Victims]:
        """Whom to evict, per node that this makes room on.

        Raises:
            RefusedError: the cluster is not known well enough.
        """
        if not args.pod.needs_devices:
            return args.victims
        return await self._solve(args.pod, choose_victims, args.victims)

    async def bind(self, args: BindArgs) -> None:
        """Allocate, reserve and bind; see `extender.verbs.bind`.

        Raises:
            RefusedError: the pod is not bound, and why.
        """
        known = self._decisions.of(args.uid)
        try:
            key = ObjectKey(args.namespace, args.name)
            await self._binder.bind(key, args.uid, args.node, seen=known.pod if known else None)
        except BindError as error:
            raise RefusedError(str(error)) from error
        self._decisions.drop(args.uid)

    async def _solve(self, pod: Pod, verb: Callable[..., _T], asked: object, **options: object) -> _T:
        """Run a verb in a thread, over the cluster as it is now."""
        if self._state.not_ready:
            raise RefusedError(f"not ready: {self._state.not_ready}")
        snapshot = self._state.snapshot
        until = self._solver.clock() + self._solving_seconds
        call = partial(verb, _refreshed(pod, snapshot), asked, snapshot, self._solver, until=until, **options)
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)


def _refreshed(pod: Pod, snapshot: Snapshot) -> Pod:
    """The pod with the claims that have been made for it since the scheduler looked."""
    known = snapshot.pod(pod.uid)
    if known is None or known.claim_statuses == pod.claim_statuses:
        return pod
    return replace(pod, claim_statuses={**pod.claim_statuses, **known.claim_statuses})
