"""The extender itself, as a process with the rights that we ship."""

import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import yaml

from extender.kube.api import ApiError, RawObject
from extender.kube.resources import Resource
from tests.kit.controlplane.access import EXTENDER
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import START_SECONDS, ControlPlane
from tests.kit.places import ROOT
from tests.kit.process import Process, answers, free_port, running

_ROOT: Final = ROOT
_DEPLOY: Final = _ROOT / "deploy"
RIGHTS: Final = (
    _DEPLOY / "rbac.yaml",
    *sorted((_DEPLOY / "rights").glob("*.yaml")),
    *(_DEPLOY / each / "rights.yaml" for each in ("kueue", "scheduling-gates")),
    *sorted((_DEPLOY / "crds").glob("*-rights.yaml")),
)
"""The rights of all features."""

API_RIGHTS: Final = _ROOT / "deploy" / "api" / "rbac.yaml"
"""What is needed beside `RIGHTS` for callers off the node: their roles, and the right to review callers."""

SETTINGS: Final = _ROOT / "config" / "extender.yaml"
_ANY_SCHEDULER: Final = ("env", "DRA_EXTENDER__SCHEDULING__SCHEDULER_NAMES=")
"""Schedulers of tests have names of their own, which the shipped settings do not know."""

SERVE: Final = (*_ANY_SCHEDULER, sys.executable, "-m", "extender", "serve", "--config", str(SETTINGS))
_GROUP: Final = "rbac.authorization.k8s.io"
ROLE_KINDS: Final = {
    "Role": Resource("Role", "roles", _GROUP, ("v1",), namespaced=True),
    "RoleBinding": Resource("RoleBinding", "rolebindings", _GROUP, ("v1",), namespaced=True),
    "ClusterRole": Resource("ClusterRole", "clusterroles", _GROUP, ("v1",), namespaced=False),
    "ClusterRoleBinding": Resource("ClusterRoleBinding", "clusterrolebindings", _GROUP, ("v1",), namespaced=False),
}


@dataclass(frozen=True, slots=True)
class Extender:
    """A running extender."""

    url: str
    process: Process


async def grant_rights(client: Client, *files: Path) -> None:
    """Apply the shipped roles, for the user that the extender has here instead of its service account.

    Args:
        client: an administrator.
        files: with the roles; none: `RIGHTS`.
    """
    for obj in (each for file in files or RIGHTS for each in _objects(file)):
        resource = ROLE_KINDS.get(obj["kind"])
        if resource is None:
            continue
        if "subjects" in obj:
            obj["subjects"] = [{"kind": "User", "name": EXTENDER, "apiGroup": _GROUP}]
        await _create_once(client, resource, obj)


@asynccontextmanager
async def running_extender(
    plane: ControlPlane, *, kubeconfig: Path | None = None, serve: Sequence[str] = SERVE
) -> AsyncIterator[Extender]:
    """An extender over the control plane, ready, with the settings that we ship; flags only say where things are.

    Args:
        kubeconfig: its way to the API server, if that is not the straight one.
        serve: the command line before these flags.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = (
        *serve,
        *("--port", str(port), "--kubeconfig", str(kubeconfig or plane.kubeconfig(EXTENDER))),
    )
    process = Process("dra-extender", command, answers(f"{url}/readyz"), plane.logs / f"dra-extender-{port}.log")
    async with running(process, within=START_SECONDS) as plane.seconds[process.name]:
        yield Extender(url, process)


@asynccontextmanager
async def extender_with(plane: ControlPlane, settings: Mapping[str, Any]) -> AsyncIterator[Extender]:
    """An extender over the control plane, ready, with settings of its own; its URL is that of its health and metrics.

    Args:
        settings: all but ``operations``.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    file = Path(mkdtemp(prefix="extender-", dir=plane.folder)) / "extender.yaml"
    file.write_text(yaml.safe_dump({**settings, "operations": {"host": "127.0.0.1", "port": port}}))
    kubeconfig = str(plane.kubeconfig(EXTENDER))
    command = (sys.executable, "-m", "extender", "serve", "--config", str(file), "--kubeconfig", kubeconfig)
    process = Process("dra-extender", command, answers(f"{url}/readyz"), plane.logs / f"dra-extender-{port}.log")
    async with running(process, within=START_SECONDS) as plane.seconds[process.name]:
        yield Extender(url, process)


def _objects(file: Path) -> Iterator[RawObject]:
    return yaml.safe_load_all(file.read_text())


async def _create_once(client: Client, resource: Resource, obj: RawObject) -> None:
    try:
        await client.get(resource, key_of(obj))
    except ApiError as error:
        if not error.is_missing:
            raise
        await client.create(resource, obj)
