"""What runs: Deployments that stay, and Jobs that end, with claims of all kinds."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, TEMPLATES, Resource
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.scenario import by_name, by_template
from tests.kit.objects.manifests import DEVICE_CLASS, claim, claim_spec, pod, request, requests, template
from tests.kit.objects.parts import DRIVER, selectors
from tests.soak.site import EXTENDED, MODELS

DEPLOYMENTS: Final = Resource("Deployment", "deployments", "apps", ("v1",), namespaced=True)
JOBS: Final = Resource("Job", "jobs", "batch", ("v1",), namespaced=True)

PODS_OF_A_JOB: Final = 5
REPLICAS: Final = (5, 25)
"""Of a Deployment: the fewest and the most."""

SHARING: Final = 4
"""Replicas of a Deployment whose pods share one claim, all on one node."""

_MODEL: Final = f'device.attributes["{DRIVER}"].model == '
_PREFERRED: Final = [
    {"name": model, "deviceClassName": DEVICE_CLASS, "selectors": selectors(f'{_MODEL}"{model}"')} for model in MODELS
]
SPECS: Final[Mapping[str, RawObject]] = {
    "one": claim_spec(1),
    "pair": requests(request("gpu", DEVICE_CLASS, count=2), constraints=[{"matchAttribute": f"{DRIVER}/model"}]),
    "preferred": requests({"name": "gpu", "firstAvailable": _PREFERRED}),
    "newer": requests(
        request("gpu", DEVICE_CLASS, selectors=selectors(f'device.attributes["{DRIVER}"].firmware >= 1'))
    ),
}
"""Of claim templates, by their names."""

KINDS: Final = (*SPECS, "extended", "shared")
"""What the pods of a workload ask for."""


@dataclass(slots=True)
class Workloads:
    """The workloads of one namespace.

    Attributes:
        deployments: their names, each with its kind.
        made: Jobs so far.
    """

    client: Client
    namespace: str
    random: Random
    deployments: dict[str, str] = field(default_factory=dict, init=False)
    made: int = field(default=0, init=False)

    async def build(self, number: int) -> None:
        """Make templates, shared claims and this number of Deployments."""
        for name, spec in SPECS.items():
            await self.client.create(TEMPLATES, template(self.namespace, name, spec))
        for each in range(number):
            kind = KINDS[each % len(KINDS)]
            name = f"{kind}-{each}"
            if kind == "shared":
                await self.client.create(CLAIMS, claim(self.namespace, name))
            self.deployments[name] = kind
            await self.client.create(DEPLOYMENTS, self._deployment(name, kind))

    async def add_job(self) -> None:
        """One more Job."""
        self.made += 1
        kind = self.random.choice([*SPECS, "extended"])
        name = f"job-{self.made}"
        spec: RawObject = {
            "parallelism": PODS_OF_A_JOB,
            "completions": PODS_OF_A_JOB,
            "template": self._pod(name, kind, restartPolicy="Never"),
            # Pods of drained and lost nodes count as failed.
            "backoffLimit": 1000,
            "ttlSecondsAfterFinished": 2,
        }
        await self.client.create(JOBS, self._workload("batch/v1", "Job", name, spec))

    async def resize(self) -> None:
        """Another number of replicas for one Deployment."""
        name = self.random.choice([each for each, kind in self.deployments.items() if kind != "shared"])
        await self._change(name, {"replicas": self.random.randint(*REPLICAS)})

    async def roll_out(self) -> None:
        """A new template for one Deployment: all of its pods are replaced, some at a time."""
        name = self.random.choice([*self.deployments])
        annotations = {"example.com/release": str(self.random.random())}
        await self._change(name, {"template": {"metadata": {"annotations": annotations}}})

    async def clear(self) -> None:
        """Delete all workloads; controllers delete their pods."""
        for resource in (DEPLOYMENTS, JOBS):
            for each in (await self.client.list(resource, self.namespace)).items:
                with suppress(ApiError):  # Jobs that have ended go by themselves
                    await self.client.delete(resource, key_of(each))

    async def jobs_left(self) -> list[str]:
        """The names of Jobs that are still there."""
        return [key_of(each).name for each in (await self.client.list(JOBS, self.namespace)).items]

    async def _change(self, name: str, spec: RawObject) -> None:
        await self.client.patch(DEPLOYMENTS, ObjectKey(self.namespace, name), {"spec": spec})

    def _deployment(self, name: str, kind: str) -> RawObject:
        spec: RawObject = {
            "replicas": SHARING if kind == "shared" else self.random.randint(*REPLICAS),
            "selector": {"matchLabels": {"app": name}},
            "template": self._pod(name, kind),
        }
        return self._workload("apps/v1", "Deployment", name, spec)

    def _pod(self, app: str, kind: str, **spec: Any) -> RawObject:
        """The pod template of a workload."""
        if kind == "extended":
            limits = {"limits": {EXTENDED: "1"}}
            container = {"name": "main", "image": "none", "resources": limits}
            made = pod(self.namespace, app, containers=[container], **spec)
        else:
            made = pod(self.namespace, app, claims=[by_name(app) if kind == "shared" else by_template(kind)], **spec)
        return {"metadata": {"labels": {"app": app}}, "spec": made["spec"]}

    def _workload(self, version: str, kind: str, name: str, spec: RawObject) -> RawObject:
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
