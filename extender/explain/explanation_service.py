"""Explanations over one cluster: a pod or a claim in, an explanation out, or why there is none.

An explanation runs in a thread, one at a time, and pauses while a verb runs.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from allocator import InvalidObjectError
from allocator.tools import dns_label, dns_subdomain
from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.snapshot import Snapshot
from extender.config.settings import SchedulingSettings
from extender.explain.claim_admission import read_admission
from extender.explain.explain_claim import explain_claim, unknown_claim
from extender.explain.explain_pod import Explainer
from extender.explain.explanation import Explanation, needs_no_devices, unknown_pod
from extender.explain.names_within import names_within, namespaces_of
from extender.explain.proposals.suggestions import Suggest
from extender.explain.verb_priority import VerbPriority
from extender.kube.api import ObjectKey, RawObject
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.kube.resources import CLAIMS, PODS
from extender.negotiation.negotiation import Negotiation
from extender.observe.overview import Overview
from extender.pods.decision_case import refreshed
from extender.pods.stand_in import stand_in
from extender.tools.faults import RefusedError

_T = TypeVar("_T")

_EXPLAINING_SECONDS: Final = 10.0
"""The longest time of one explanation. Other explanations wait meanwhile."""

_ASKING_SECONDS: Final = 5.0
"""The longest wait for the API server to say whether a pod exists, with the wait for answers about other pods."""


class Explanations:
    """Explains the pods and claims of a cluster.

    Attributes:
        overview: of the cluster.
        verb_priority: knows when verbs run.

    Args:
        overview: of the cluster.
        negotiation: asks controllers about claims that they allocate.
        scheduling: the schedulers that call the extender, and whether pods are evicted.
        suggest: finds further changes for pods that fit nowhere.
    """

    def __init__(
        self,
        overview: Overview,
        negotiation: Negotiation,
        scheduling: SchedulingSettings,
        suggest: Sequence[Suggest] = (),
    ) -> None:
        self.overview = overview
        self.verb_priority = VerbPriority()
        self._state = overview.state
        self._api = overview.api
        self._decider = overview.decider
        self._negotiation = negotiation
        self._scheduling = scheduling
        self._suggest = suggest
        self._explaining = anyio.CapacityLimiter(1)
        self._asking = anyio.CapacityLimiter(1)

    async def of_pod(
        self, key: ObjectKey, nodes: Sequence[str] | None = None, *, within: str | None = None
    ) -> Explanation | str:
        """Why a pod of the cluster goes where it goes, on all nodes or on some. A text if there is no such pod.

        Args:
            key: of the pod.
            nodes: None: all nodes.
            within: the only namespace whose objects the reader may read; None: all.

        Raises:
            RefusedError: the cluster is not known well enough, or the API server does not say whether the pod exists.
        """
        pod = self._state.known().pods.get(key)
        return await self._absence(key, within) if pod is None else await self.explain(pod, nodes, within=within)

    async def explain(self, pod: Pod, nodes: Sequence[str] | None = None, *, within: str | None = None) -> Explanation:
        """As `of_pod`, for a pod that need not exist.

        Raises:
            RefusedError: the cluster is not known well enough.
        """
        await self._negotiation.look(pod)
        snapshot = self._state.known()
        explainer = self._explainer(snapshot)
        known = refreshed(pod, snapshot)
        async with self._asking:
            admission = await read_admission(known, snapshot, self._api)
        return await self._in_thread(lambda: _readable(explainer.explain(known, nodes, admission), within, snapshot))

    async def of_claim(
        self, key: ObjectKey, nodes: Sequence[str] | None = None, *, within: str | None = None
    ) -> Explanation | str:
        """What a claim holds, or why it is not allocated; as `of_pod`. A text if there is no such claim.

        Raises:
            RefusedError: the cluster is not known well enough.
        """
        snapshot = self._state.known()
        found = snapshot.claims.get(key)
        if found is None:
            problem = snapshot.problems.get((CLAIMS.kind, key))
            known = [other for other in snapshot.claims if within in (None, other.namespace)]
            return f"claim {key} can't be read: {problem}" if problem else unknown_claim(key, known)
        await self._negotiation.look(stand_in(found.claim))
        now = self._state.known()
        explainer = self._explainer(now)
        return await self._in_thread(lambda: _readable(explain_claim(found, explainer, nodes), within, now))

    def _explainer(self, snapshot: Snapshot) -> Explainer:
        until = self._decider.solver.clock() + _EXPLAINING_SECONDS
        return Explainer(
            snapshot,
            self._decider,
            self.verb_priority.turn(),
            until,
            schedulers=self._scheduling.scheduler_names,
            preempts=self._scheduling.preemption,
            suggest=self._suggest,
        )

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._explaining)

    async def _absence(self, key: ObjectKey, within: str | None) -> str:
        """Why there is no pod with devices of that name. The API server is asked: it has the pods without devices."""
        snapshot = self._state.known()
        if problem := snapshot.problems.get((PODS.kind, key)):
            return f"pod {key} can't be read: {problem}"
        found = await self._asked_for(key)
        if found is None:
            known = [other for other in snapshot.pods if within in (None, other.namespace)]
            return await self._in_thread(partial(unknown_pod, key, known))
        try:
            return f"pod {key} is not known here yet" if parse_pod(found).needs_devices else needs_no_devices(key)
        except InvalidObjectError as error:
            return f"pod {key} can't be read: {error.summary}"

    async def _asked_for(self, key: ObjectKey) -> RawObject | None:
        """The pod as the API server has it; None if there is none. One request at a time, not one for each caller."""
        if dns_label(key.namespace) or dns_subdomain(key.name):
            return None
        try:
            async with asyncio.timeout(_ASKING_SECONDS), self._asking:
                return await self._api.get(PODS, key)
        except (ApiError, OutcomeUnknownError, TimeoutError) as error:
            if isinstance(error, ApiError) and error.is_missing:
                return None
            text = f"no pod with devices is called {key}; the API server does not say whether it exists"
            raise RefusedError(f"{text}: {error}" if str(error) else text) from error


def _readable(explanation: Explanation, within: str | None, snapshot: Snapshot) -> Explanation:
    """The explanation as its reader may read it."""
    return explanation if within is None else names_within(explanation, within, namespaces_of(snapshot))
