"""The answers of the service, computed in this process from the objects of an API server. Nothing is written."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import httpx
import orjson

from extender.answers.observe.scheduler_settings import scheduler_file_of
from extender.assembly import Surroundings, make_extender, make_solver
from extender.autoscaler.autoscaler import make_autoscaler
from extender.autoscaler.negotiating import Negotiating
from extender.cluster.cluster_state import ClusterState
from extender.config.settings import Settings
from extender.faces.commands.audit import note_namespaces
from extender.faces.commands.reading import EXPLAINED
from extender.faces.http.app import create_app
from extender.framework.pod_and_claim_states import PodState, state_of_pod
from extender.kube.api import ObjectKey, RawObject, key_of
from extender.kube.remote import RemoteApi
from extender.kube.resources import PODS, RESOURCES
from extender.planning.kube_scheduler import SchedulerChecks
from extender.planning.pod_group_rules import Attempts
from extender.planning.templates.catalog import read_catalog

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
        around = Surroundings(simulation=True, catalog=catalog, read_scheduler_file=scheduler_file_of(settings))
        extender = make_extender(api, self._state, solver, settings, around=around)
        self._service = extender.service
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
        pods: Mapping[ObjectKey, RawObject] = {}
        for resource in RESOURCES.values():
            if resource not in EXPLAINED or resource.kind not in self._api.served.versions:
                self._state.replace(resource, (), 0)
                continue
            listing = await self._api.list(resource)
            self._state.replace(resource, listing.items, listing.revision)
            if resource == PODS:
                pods = {key_of(raw): raw for raw in listing.items}
        await note_namespaces(self._api, self._state)
        with suppress(TimeoutError):
            async with asyncio.timeout(_JUDGING_SECONDS):
                await self._judge(pods)

    async def _judge(self, pods: Mapping[ObjectKey, RawObject]) -> None:
        """Ask filter about the pending pods: the decision log has the answers then."""
        snapshot = self._state.snapshot
        attempts = Attempts(snapshot, self._settings.scheduling.scheduler_names)
        checks = SchedulerChecks(snapshot)
        for key, pod in snapshot.pods.items():
            if state_of_pod(pod) is PodState.PENDING and not attempts.hindrance(pod):
                rejected = checks.rejections(pod)  # a scheduler does not ask about these
                nodes = [name for name in snapshot.nodes if name not in rejected]
                body = orjson.dumps({"Pod": pods[key], "NodeNames": nodes})
                await self.http.post(f"{self._settings.server.prefix}/filter", content=body)
