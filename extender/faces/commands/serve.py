"""`dra-extender serve`: the service over a live cluster, or over manifests."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from extender.config.settings import Settings
from extender.faces.commands.options import ConfigOption, KubeconfigOptions, ManifestsOption, PolicyOption, command
from extender.faces.commands.output import fail
from extender.faces.commands.reading import new_cluster, settings_of
from extender.faces.serving import run as serving
from extender.faces.simulation.cluster import ParameterObjects
from extender.faces.tracing import open_tracing
from extender.kube.connection.credentials import find_origin
from extender.lab.cluster import EmbeddedCluster


@command(
    "dra-extender serve --manifests config/example",
    "dra-extender serve --kubeconfig ~/.kube/config --config config/extender.yaml",
)
def serve(
    *,
    manifests: ManifestsOption = None,
    config: ConfigOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    policy: PolicyOption = None,
    kubeconfig: KubeconfigOptions,
) -> None:
    """Answer the calls of a kube-scheduler for a live cluster or, with --manifests, for a cluster in memory."""
    settings = settings_of(config, {"server.host": host, "server.port": port, "scheduling.policy": policy})
    if manifests and kubeconfig.is_given:
        fail("--manifests names a cluster in memory, --kubeconfig and --context name a live one: give only one of them")
    if manifests and settings.api.port:
        fail("api.port: an API server says who callers are and what they may do, and a cluster in memory has none")
    tracing = open_tracing(settings.tracing, os.environ)
    if manifests:
        opening = serving.embedded(_embedded(manifests, settings), settings)
    else:
        opening = serving.live(find_origin(*kubeconfig, os.environ), settings, tracing)
    serving.run(opening, settings, tracing)


def _embedded(paths: Sequence[Path], settings: Settings) -> EmbeddedCluster:
    """The cluster of some manifests, with the parameters of negotiated claims."""
    loaded = new_cluster("serve", paths)
    cluster = EmbeddedCluster.by_settings(settings, loaded.objects)
    ParameterObjects(settings.controllers, cluster.api).keep(loaded.documents)
    return cluster
