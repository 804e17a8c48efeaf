"""The answers of the service, computed in this process from the objects of an API server. Nothing is written."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import httpx

from extender.answers.observe.scheduler_settings import scheduler_file_of
from extender.autoscaler.autoscaler import make_autoscaler
from extender.autoscaler.negotiating import Negotiating
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.config.settings import Settings
from extender.faces.assembly import Surroundings, make_extender, make_solver
from extender.faces.commands.audit import note_namespaces
from extender.faces.commands.reading import EXPLAINED
from extender.faces.http.app import create_app
from extender.framework.pod_and_claim_states import PodState, state_of_pod
from extender.kube.remote import RemoteApi
from extender.kube.resources import RESOURCES
from extender.planning.templates import read_catalog
from extender.tools.offload import in_thread

_HOST = "http://127.0.0.1:8888"
_JUDGING_SECONDS = 20.0
"""The most time to find out why pods wait."""


class ComputedService:
    """The service over a copy of a cluster; `refresh` renews the copy.

    Attributes:
        http: asks the service; only paths that change nothing are asked.
    """

    def __init__(self, api: RemoteApi, settings: Settings) -> None:
        self._api = api
        self._settings = settings
        scheduling = settings.scheduling
        self._state = ClusterState(
            counts_cpu=scheduling.counts_cpu,
            cpu_of_all_pods=scheduling.cpu_of_all_pods,
            counts_resources=settings.features.node_resources,
            has_whole_pods=True,
        )
        solver = make_solver(settings)
        catalog = read_catalog(settings)
        around = Surroundings(
            simulation=True, catalog=catalog, has_schedulers=False, read_scheduler_file=scheduler_file_of(settings)
        )
        extender = make_extender(api, self._state, solver, settings, around=around)
        self._service = extender.service
        self._negotiation = extender.negotiation
        self._unasked = extender.overview.unasked
        negotiating = Negotiating(extender.negotiation.controllers, extender.overview.api)
        autoscaler = make_autoscaler(self._service, negotiating, solver, settings, catalog)
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(create_app(extender, autoscaler, settings)), base_url=_HOST
        )

    async def close(self) -> None:
        """Close the client, and the connections to controllers."""
        await self.http.aclose()
        await self._service.close()

    async def refresh(self) -> None:
        """List all objects, and find out why pods wait.

        Raises:
            ApiError, OutcomeUnknownError: they cannot be read.
        """
        for resource in RESOURCES.values():
            if resource not in EXPLAINED or resource.kind not in self._api.served.versions:
                self._state.replace(resource, (), 0)
                continue
            listing = await self._api.list(resource)
            self._state.replace(resource, listing.items, listing.revision)
        await note_namespaces(self._api, self._state)
        snapshot = self._state.snapshot
        waiting = [pod for pod in snapshot.pods.values() if state_of_pod(pod) is PodState.PENDING]
        with suppress(TimeoutError):
            async with asyncio.timeout(_JUDGING_SECONDS):
                for pod in waiting:
                    await self._negotiation.look(pod)
        await in_thread(partial(self._judge, waiting, snapshot))

    def _judge(self, waiting: Sequence[Pod], snapshot: Snapshot) -> None:
        """Find out why pods wait: tables know it then."""
        if self._unasked is not None:
            reason = self._unasked.reasons(snapshot, _JUDGING_SECONDS)
            for pod in waiting:
                reason(pod)
