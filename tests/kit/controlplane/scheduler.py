"""A kube-scheduler, with the configuration and the flags that we ship."""

import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import yaml

from extender.kube.api import RawObject
from tests.kit.controlplane.components import START_SECONDS, ControlPlane
from tests.kit.places import CONFIG
from tests.kit.process import Process, answers, free_port, running

SHIPPED: Final = CONFIG / "scheduler.yaml"

METRICS_FOR_ALL: Final = "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics"
"""A flag of a scheduler whose metrics everybody may read."""

_COMMAND_LINE: Final = re.compile(r"^#\s+kube-scheduler (.*)$", re.MULTILINE)


def shipped_flags(text: str) -> tuple[str, ...]:
    """The flags of the command line in the configuration's head comment, but for ``--config``."""
    found = _COMMAND_LINE.search(text)
    if found is None:
        raise ValueError("the configuration's head comment has no line with kube-scheduler's flags")
    return tuple(flag for flag in shlex.split(found[1]) if not flag.startswith("--config="))


def localize(text: str, extender_url: str, kubeconfig: Path) -> RawObject:
    """A configuration for this machine: where the API server and the extender are; nothing else differs.

    Args:
        extender_url: with the extender's prefix, if it has one.
    """
    config: RawObject = yaml.safe_load(text)
    config["clientConnection"] = config.get("clientConnection", {}) | {"kubeconfig": str(kubeconfig)}
    for extender in config["extenders"]:
        extender["urlPrefix"] = extender_url
    return config


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A kube-scheduler, and where it answers.

    Attributes:
        url: of its health and metrics.
        certificate: file of the server's certificate; the scheduler writes it when it starts.
    """

    process: Process
    url: str
    certificate: Path


@asynccontextmanager
async def scheduler(plane: ControlPlane, config: RawObject, flags: tuple[str, ...]) -> AsyncIterator[Process]:
    """A scheduler that is ready, as Kubernetes' own user for it: its built-in roles are all that it has."""
    async with running_scheduler(plane, config, flags) as found:
        yield found.process


@asynccontextmanager
async def running_scheduler(plane: ControlPlane, config: RawObject, flags: tuple[str, ...]) -> AsyncIterator[Scheduler]:
    """As `scheduler`, with the place where it answers."""
    made = _scheduler(plane, config, flags)
    async with running(made.process, within=START_SECONDS) as plane.seconds[made.process.name]:
        yield made


def _scheduler(plane: ControlPlane, config: RawObject, flags: tuple[str, ...]) -> Scheduler:
    port = free_port()
    folder = Path(mkdtemp(prefix="scheduler-", dir=plane.folder))
    path = folder / "scheduler.yaml"
    path.write_text(yaml.safe_dump(config))
    command = (
        *plane.binaries.command("kube-scheduler"),
        f"--config={path}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        *flags,
    )
    url, certificate = f"https://127.0.0.1:{port}", folder / "kube-scheduler.crt"
    log = plane.logs / f"kube-scheduler-{port}.log"
    process = Process("kube-scheduler", command, answers(f"{url}/readyz", certificate), log)
    return Scheduler(process, url, certificate)
