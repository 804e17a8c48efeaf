"""`dra-extender demo`: the service over a cluster in memory that lives."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Final

import typer

from allocator.tools import JSON
from extender.config.settings import Settings
from extender.faces.commands.options import PolicyOption, command
from extender.faces.commands.reading import new_cluster, settings_of
from extender.faces.demo.demo import MANIFESTS, Demo, performed
from extender.faces.demo.players import NAME
from extender.faces.serving import run as serving
from extender.faces.tracing import open_tracing
from extender.lab.cluster import EmbeddedCluster

_SETTINGS: Final[Mapping[str, JSON]] = {
    "scheduling.schedulerNames": [NAME],
    "autoscaler.learnFromLabel": "node.kubernetes.io/instance-type",
    "autoscaler.sessions": 2,
    "log.level": "warning",
}
"""What the demo needs: it tells itself what happens."""


@command("dra-extender demo", "dra-extender demo --port 8080 --speed 4 --seed 7")
def demo(
    *,
    port: Annotated[int, typer.Option(help="Port to listen on, of 127.0.0.1.", min=1, max=65535)] = 8888,
    seed: Annotated[int, typer.Option(help="Decides which pods come, when, and how long they run.")] = 1,
    speed: Annotated[float, typer.Option(help="Seconds of the demo in a second.", min=0.1, max=20.0)] = 1.0,
    policy: PolicyOption = None,
) -> None:
    """Play a cluster in which pods come, wait, run, are evicted and end; the console shows it. Nothing else is needed.

    A scheduler, kubelets, owners of pods and an autoscaler are played. They ask the service over HTTP, as the real ones
    do. Each scene is announced, and what happens is printed, with the reason why a pod waits.
    """
    settings = settings_of(
        None, {**_SETTINGS, "server.host": "127.0.0.1", "server.port": port, "scheduling.policy": policy}
    )
    tracing = open_tracing(settings.tracing, os.environ)
    serving.run(_opened(Demo(seed, speed), settings), settings, tracing)


@asynccontextmanager
async def _opened(demo: Demo, settings: Settings) -> AsyncIterator[serving.ServedCluster]:
    """The cluster of the demo, with all who take part."""
    cluster = EmbeddedCluster.by_settings(settings, new_cluster("demo", [MANIFESTS]).objects)
    url = f"http://{settings.server.host}:{settings.server.port}{settings.server.prefix}"
    async with (
        serving.embedded(cluster, settings, has_schedulers=True) as served,
        performed(demo, cluster.api, url, typer.echo),
    ):
        yield served
