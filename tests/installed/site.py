"""A cluster as operators have it: machines with kubelets, service account tokens on, the chart installed by Helm.

The pods of dra-extender run the image of its Dockerfile, with the rights, ports, probes and limits that the chart
renders, and nothing else.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLASSES, NODES, PODS, SLICES, TEMPLATES, Resource
from tests.cluster.rendering import CHART, run_helm
from tests.kit.certificates import Authority
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.client import NAMESPACES, Client, connect, key_of
from tests.kit.controlplane.components import START_SECONDS, ControlPlane, Options, control_plane
from tests.kit.controlplane.in_tree import in_tree
from tests.kit.node.binaries import NodeBinaries
from tests.kit.node.building import REPOSITORY, SCHEDULER, TAGS, image_file
from tests.kit.node.driver import GPU_DRIVER
from tests.kit.node.machine import API_ADDRESS, machine, set_up_sandbox
from tests.kit.node.node import is_usable
from tests.kit.node.sandbox import LOGS_INSIDE
from tests.kit.objects.manifests import device_class, template
from tests.kit.objects.manifests import namespace as a_namespace
from tests.kit.places import ROOT
from tests.kit.process import Process, running
from tests.kit.waiting import wait_for_answer

IMAGES: Final = ROOT / "tests/installed/.images"
MACHINES: Final = 3
"""A replica fills most of a machine of two cores: one for each of two replicas, and one for the third of a rollout."""

DEVICES: Final = tuple({"name": f"gpu-{number}"} for number in range(4))
"""Of each machine."""

NAMESPACE: Final = "kube-system"
RELEASE: Final = "dra-extender"
ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}:dra-extender"
NODE_ACCOUNT: Final = f"{ACCOUNT}-node"
WORKLOAD: Final = "workload"
"""The namespace of the pods that come and go."""

TEMPLATE: Final = "one-gpu"
LABEL: Final = "app.kubernetes.io/name"
AUDIT: Final = LOGS_INSIDE / "audit.log"
DEPLOYMENTS: Final = Resource("Deployment", "deployments", "apps", ("v1",), namespaced=True)
ACCOUNTS: Final = Resource("ServiceAccount", "serviceaccounts", "", ("v1",), namespaced=True)
MACHINE_SECONDS: Final = 300.0
"""For the start of a machine: each reads images of 300 MB."""

ROLLOUT_SECONDS: Final = 600.0
TOKEN_SECONDS: Final = 600
"""For which tokens are valid: the least that an API server allows, where the chart says an hour."""

POLICIES: Final = tuple(
    Resource(kind, plural, "admissionregistration.k8s.io", ("v1",), namespaced=False)
    for kind, plural in (
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
    )
)

_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "Metadata", "resources": [{"group": "", "resources": ["pods/binding", "pods/eviction"]}]},
        {"level": "None"},
    ],
}


@dataclass(slots=True)
class Site:
    """The running cluster.

    Attributes:
        client: an administrator's.
        helm: the program.
    """

    plane: ControlPlane
    client: Client
    helm: Path
    machines: Sequence[Process]
    values: dict[str, Any] = field(default_factory=dict)

    async def apply(self, **values: Any) -> None:
        """Install the chart, or upgrade it, with values beside those of before, and wait until its rollout is done."""
        self.values |= values
        await self._helm("upgrade", "--install", RELEASE, str(CHART), values=_images(TAGS[0]) | self.values)
        await self.rolled_out()

    async def roll_back(self) -> None:
        """Go back to the release before, as `apply`."""
        await self._helm("rollback", RELEASE)
        await self.rolled_out()

    async def rolled_out(self) -> None:
        """Wait until all replicas are those of the newest revision, and ready."""
        key = ObjectKey(NAMESPACE, "dra-extender")

        def is_done(found: RawObject | None) -> bool:
            status, wanted = (found or {}).get("status", {}), (found or {}).get("spec", {}).get("replicas")
            counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
            return bool(
                found
                and status.get("observedGeneration", 0) >= found["metadata"]["generation"]
                and counts == [wanted] * 3
            )

        await self.client.wait_for(DEPLOYMENTS, key, is_done, within=ROLLOUT_SECONDS)

    async def replicas(self, name: str = "dra-extender") -> list[RawObject]:
        """The pods of dra-extender that are not ending; ``name`` is their label."""
        return [
            each
            for each in (await self.client.list(PODS, NAMESPACE)).items
            if each["metadata"].get("labels", {}).get(LABEL) == name and not each["metadata"].get("deletionTimestamp")
        ]

    async def _helm(self, *command: str, values: dict[str, Any] | None = None) -> None:
        status, text, messages = await asyncio.to_thread(
            run_helm, self.helm, *command, values=values, namespace=NAMESPACE, kubeconfig=self.plane.kubeconfig(ADMIN)
        )
        assert status == 0, text + messages


def _images(tag: str) -> dict[str, Any]:
    """What an operator says of images; the one of kube-scheduler has the version of the cluster."""
    return {
        "images": {
            "extender": {"name": REPOSITORY, "tag": tag, "pullPolicy": "Never"},
            "scheduler": {"name": SCHEDULER, "pullPolicy": "Never"},
        }
    }


def with_image(tag: str) -> dict[str, Any]:
    """Values that choose one of the images of dra-extender."""
    return _images(tag)


@asynccontextmanager
async def running_site(binaries: NodeBinaries, helm: Path, folder: Path) -> AsyncIterator[Site]:
    """The cluster with its machines and the cluster's own default scheduler; nothing of ours is installed yet."""
    set_up_sandbox()
    policy = folder / "audit-policy.yaml"
    policy.write_text(yaml.safe_dump(_POLICY))
    # Whoever serves TLS beside the API server reads from it whom to trust, and complains if it trusts nobody.
    for name in ("client", "requestheader-client"):
        (folder / f"{name}.crt").write_bytes(Authority(name).pem)
    async with AsyncExitStack() as stack:
        started = control_plane(binaries.control_plane, folder, LOGS_INSIDE, _options(policy, folder))
        plane = await asyncio.to_thread(stack.enter_context, started)
        client = await stack.enter_async_context(connect(plane.access()))
        files = [image_file(IMAGES, each) for each in (REPOSITORY, SCHEDULER)]
        machines = [machine(each, plane, binaries.programs, files, DEVICES) for each in range(1, MACHINES + 1)]
        async with asyncio.TaskGroup() as starts:
            for each in machines:
                starts.create_task(_start(stack, plane, each))
        await stack.enter_async_context(in_tree(plane))
        await _prepare(client)
        yield Site(plane, client, helm, machines)


def _options(policy: Path, folder: Path) -> Options:
    return Options(
        server_flags=(
            "--authorization-mode=Node",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={AUDIT}",
            *(f"--{name}-ca-file={folder / name}.crt" for name in ("client", "requestheader-client")),
        ),
        # All that run by default.
        more_controllers=("*",),
        address=API_ADDRESS,
        port=443,
        service_accounts=True,
    )


async def _start(stack: AsyncExitStack, plane: ControlPlane, process: Process) -> None:
    plane.seconds[process.name] = await stack.enter_async_context(running(process, within=MACHINE_SECONDS))


async def _prepare(client: Client) -> None:
    """The device class, the namespace of the workload with its account, machines that are ready and have devices."""
    await client.create(CLASSES, device_class(GPU_DRIVER, GPU_DRIVER))
    await client.create(NAMESPACES, a_namespace(WORKLOAD))
    await client.create(TEMPLATES, template(WORKLOAD, TEMPLATE, one_of(GPU_DRIVER)))
    for kind, policy in zip(POLICIES, _short_tokens(), strict=True):
        await client.create(kind, policy)
    for namespace in (WORKLOAD, NAMESPACE):
        await client.wait_for(ACCOUNTS, ObjectKey(namespace, "default"), bool, within=START_SECONDS)

    async def usable() -> tuple[int, int]:
        nodes, slices = [(await client.list(kind)).items for kind in (NODES, SLICES)]
        return len([each for each in nodes if is_usable(each)]), len({key_of(each).name for each in slices})

    await wait_for_answer(usable, lambda found: found == (MACHINES, MACHINES), "nodes with devices", within=60)


def one_of(device_class: str) -> RawObject:
    """The spec of a claim for a device of a class."""
    return {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": device_class}}]}}


def _short_tokens() -> tuple[RawObject, RawObject]:
    """What makes tokens end within a run: a policy for all pods of the namespace, as an operator may have one."""
    places = (
        f"[{','.join(map(str, range(10)))}].filter(i, i < size(object.spec.volumes) && "
        "object.spec.volumes[i].?projected.?sources[?0].?serviceAccountToken.hasValue())"
    )
    path = "projected/sources/0/serviceAccountToken"
    patch = f'JSONPatch{{op: "replace", path: "/spec/volumes/" + string(i) + "/{path}/expirationSeconds", value: '
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    policy = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "resourceRules": [pods],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        },
        "matchConditions": [{"name": "has-volumes", "expression": "has(object.spec.volumes)"}],
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {"expression": f"{places}.map(i, {patch}{TOKEN_SECONDS}}})"},
            }
        ],
    }
    first, second = (
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind.kind, "metadata": {"name": "short-tokens"}}
        for kind in POLICIES
    )
    return first | {"spec": policy}, second | {"spec": {"policyName": "short-tokens"}}
