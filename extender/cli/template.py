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
from extender.cli.messages import fail, note, print_data, warn
from extender.cli.options import (
    ConfigOption,
    ContextOption,
    KubeconfigOption,
    ManifestsOption,
    command_app,
    examples,
)
from extender.cli.reading import one_cluster, settings_of
from extender.cluster.cluster_state import ClusterState
from extender.cluster.live.live_cluster import connect
from extender.kube.api import RawObject
from extender.kube.connection.credentials import Origin, find_origin
from extender.kube.errors import ApiError, ConnectError, OutcomeUnknownError
from extender.kube.resources import NODES, SLICES, Resource
from extender.planning.templates.catalog import read_catalog
from extender.planning.templates.node_description import UnknownGroupError, describe
from extender.planning.templates.node_templates import TemplateError, load_templates
from extender.tools.logs import log_quietly

app = command_app()

_KINDS = (NODES, SLICES)


class TemplateOutput(StrEnum):
    """How a template is printed; ``settings``: as a file for autoscaler.nodeTemplates."""

    YAML = "yaml"
    JSON = "json"
    SETTINGS = "settings"


@app.command(
    name="template",
    epilog=examples(
        "dra-extender template falcon --config settings.yaml --manifests nodes.yaml",
        "dra-extender template gpu-large --context production -o settings > node-templates.yaml",
    ),
)
def template_command(
    group: Annotated[
        str,
        typer.Argument(metavar="GROUP", help="A value of the label autoscaler.learnFromLabel, or a template's name."),
    ],
    node_name: Annotated[str, typer.Option(metavar="NAME", help="The name of the described node.")] = "new-node",
    manifests: ManifestsOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    config: ConfigOption = None,
    output: Annotated[
        TemplateOutput, typer.Option("--output", "-o", help="How to print it: objects, or a file for the settings.")
    ] = TemplateOutput.YAML,
) -> None:
    """Print what a new node of a group is like: the Node, and the ResourceSlices that its drivers will publish.

    The slices are of a node template of the settings, or learned from a node of the group. Nodes and slices are those
    of the manifests, or of the live cluster.
    """
    if manifests and (kubeconfig or context):
        fail("manifests name a cluster in memory, --kubeconfig and --context name a live one: give only one of them")
    if problem := dns_subdomain(node_name):
        fail(f"--node-name {node_name}: {problem}")
    log_quietly()
    try:
        catalog = read_catalog(settings_of(config, {}))
    except TemplateError as error:
        fail(*error.problems)
    is_written = any(each.name == group for each in catalog.templates)
    objects = _of_manifests(manifests) if manifests else _of_cluster(kubeconfig, context, needed=not is_written)
    state = ClusterState()
    for resource, raw in objects.items():
        state.replace(resource, raw, 0)
    try:
        found = describe(group, catalog, state.snapshot, objects[NODES], objects[SLICES])
    except UnknownGroupError as error:
        fail(str(error))
    if output is TemplateOutput.SETTINGS:
        _check(yaml.safe_dump(found.settings()))
        print_data(found.settings(), TemplateOutput.YAML)
    else:
        print_data(found.objects(node_name), output)
    if found.origins:
        note(f"devices: {', '.join(found.origins)}")
    else:
        warn(f"nothing is known of the devices of group {group}: its nodes have published no complete pool")


def _check(text: str) -> None:
    """End the command if the service would not take the template."""
    try:
        load_templates(text, file="the template")
    except TemplateError as error:
        fail(*error.problems)


def _of_manifests(paths: list[Path]) -> dict[Resource, tuple[RawObject, ...]]:
    objects = one_cluster("template", paths).objects
    return {resource: tuple(dict(each.data) for each in objects if each.kind == resource.kind) for resource in _KINDS}


def _of_cluster(kubeconfig: Path | None, context: str, *, needed: bool) -> dict[Resource, tuple[RawObject, ...]]:
    """The nodes and slices of a live cluster; a template of the settings tells of its nodes' labels without any."""
    try:
        return asyncio.run(_listed(find_origin(kubeconfig, context, os.environ)))
    except ConnectError as error:
        if needed or kubeconfig or context:
            fail(*error.problems)
        note("there is no cluster, so the taints and the amounts of the Node are not known")
        return dict.fromkeys(_KINDS, ())
    except (ApiError, OutcomeUnknownError) as error:
        fail(str(error))


async def _listed(origin: Origin) -> dict[Resource, tuple[RawObject, ...]]:
    """The nodes and slices of a live cluster.

    Raises:
        ConnectError: there is no usable API server.
        ApiError, OutcomeUnknownError: the objects cannot be read.
    """
    async with connect(origin, random=random.random, listing=_KINDS) as cluster:
        return {resource: tuple((await cluster.api.list(resource)).items) for resource in _KINDS}
