"""A kube-scheduler, with the configuration and the flags that we ship."""

import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import yaml

from extender.kube.api import RawObject
from tests.kit.controlplane.components import START_SECONDS, ControlPlane
from tests.kit.process import Process, answers, free_port, running

SHIPPED: Final = Path(__file__).parents[3] / "config" / "scheduler.yaml"

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


@asynccontextmanager
async def scheduler(plane: ControlPlane, config: RawObject, flags: tuple[str, ...]) -> AsyncIterator[Process]:
    """A scheduler that is ready, as Kubernetes' own user for it: its built-in roles are all that it has."""
    process = _process(plane, config, flags)
    async with running(process, within=START_SECONDS) as plane.seconds[process.name]:
        yield process


def _process(plane: ControlPlane, config: RawObject, flags: tuple[str, ...]) -> Process:
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
    probe = answers(f"https://127.0.0.1:{port}/readyz", folder / "kube-scheduler.crt")
    return Process("kube-scheduler", command, probe, plane.logs / f"kube-scheduler-{port}.log")
