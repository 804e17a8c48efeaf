"""`dra-extender template`: what a new node of a group is like, as the service knows it."""

import asyncio
import os
import random
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import yaml

from allocator.tools import dns_subdomain
from extender.cluster.cluster_state import ClusterState
from extender.cluster.live import connect
from extender.faces.commands.options import (
    ConfigOption,
    Kubeconfig,
    KubeconfigOptions,
    ManifestsOption,
    check_one_cluster,
    command,
)
from extender.faces.commands.output import fail, note, print_data, warn
from extender.faces.commands.reading import one_cluster, settings_of
from extender.kube.api import ConnectError, RawObject
from extender.kube.connection.credentials import Origin, find_origin
from extender.kube.resources import NODES, SLICES, Resource
from extender.planning.templates.catalog import read_catalog
from extender.planning.templates.node_description import describe
from extender.planning.templates.node_templates import load_templates
from extender.tools.logs import log_quietly

_KINDS = (NODES, SLICES)


class TemplateOutput(StrEnum):
    """How a template is printed; ``settings``: as a file for autoscaler.nodeTemplates."""

    YAML = "yaml"
    JSON = "json"
    SETTINGS = "settings"


@command(
    "dra-extender template falcon --config settings.yaml --manifests nodes.yaml",
    "dra-extender template gpu-large --context production -o settings > node-templates.yaml",
)
def template_command(
    *,
    group: Annotated[
        str,
        typer.Argument(metavar="GROUP", help="A value of the label autoscaler.learnFromLabel, or a template's name."),
    ],
    node_name: Annotated[str, typer.Option(metavar="NAME", help="The name of the described node.")] = "new-node",
    manifests: ManifestsOption = None,
    kubeconfig: KubeconfigOptions,
    config: ConfigOption = None,
    output: Annotated[
        TemplateOutput, typer.Option("--output", "-o", help="How to print it: objects, or a file for the settings.")
    ] = TemplateOutput.YAML,
) -> None:
    """Print what a new node of a group is like: the Node, and the ResourceSlices that its drivers will publish.

    The slices are of a node template of the settings, or learned from a node of the group. Nodes and slices are those
    of the manifests, or of the live cluster.
    """
    check_one_cluster(manifests, kubeconfig)
    if problem := dns_subdomain(node_name):
        fail(f"--node-name {node_name}: {problem}")
    log_quietly()
    catalog = read_catalog(settings_of(config))
    is_written = any(each.name == group for each in catalog.templates)
    objects = _of_manifests(manifests) if manifests else _of_cluster(kubeconfig, needed=not is_written)
    state = ClusterState()
    for resource, raw in objects.items():
        state.replace(resource, raw, 0)
    found = describe(group, catalog, state.snapshot, objects[NODES], objects[SLICES])
    if output is TemplateOutput.SETTINGS:
        load_templates(yaml.safe_dump(found.settings()), file="the template")  # as the service would take it
        print_data(found.settings(), TemplateOutput.YAML)
    else:
        print_data(found.objects(node_name), output)
    if found.origins:
        note(f"devices: {', '.join(found.origins)}")
    else:
        warn(f"nothing is known of the devices of group {group}: its nodes have published no complete pool")


def _of_manifests(paths: list[Path]) -> dict[Resource, tuple[RawObject, ...]]:
    objects = one_cluster("template", paths).objects
    return {resource: tuple(dict(each.data) for each in objects if each.kind == resource.kind) for resource in _KINDS}


def _of_cluster(kubeconfig: Kubeconfig, *, needed: bool) -> dict[Resource, tuple[RawObject, ...]]:
    """The nodes and slices of a live cluster; a template of the settings tells of its nodes' labels without any."""
    try:
        return asyncio.run(_listed(find_origin(*kubeconfig, os.environ)))
    except ConnectError:
        if needed or kubeconfig.is_given:
            raise
        note("there is no cluster, so the taints and the amounts of the Node are not known")
        return dict.fromkeys(_KINDS, ())


async def _listed(origin: Origin) -> dict[Resource, tuple[RawObject, ...]]:
    """The nodes and slices of a live cluster.

    Raises:
        ConnectError: there is no usable API server.
        ApiError, OutcomeUnknownError: the objects cannot be read.
    """
    async with connect(origin, random=random.random, listing=_KINDS) as cluster:
        return {resource: tuple((await cluster.api.list(resource)).items) for resource in _KINDS}
