"""`dra-extender template`: what a new node of a group is like, as the service knows it.

The slices are those that the service counts on: of templates, or learned from a node of the group. The labels and the
taints are those that all nodes of the group have. Of each amount, it is the least.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from allocator import Node, Quantity
from allocator.tools import dns_subdomain, hint, shown
from extender.cluster.cluster_state import ClusterState
from extender.cluster.live import connect
from extender.cluster.snapshot import Snapshot
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
from extender.planning.templates import (
    HOSTNAME,
    NODE_NAME,
    OF_KUBERNETES,
    Blueprint,
    Catalog,
    Supply,
    load_templates,
    of_node,
    read_catalog,
)
from extender.tools.logs import log_quietly
from extender.tools.user_error import UserError

_KINDS = (NODES, SLICES)


class TemplateOutput(StrEnum):
    """A form in which a template is printed; ``settings``: a file for autoscaler.nodeTemplates."""

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


class UnknownGroupError(UserError):
    """There is no such group. The text says what there is."""


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A new node of a group.

    Attributes:
        group: the label's value, or the template's name.
        selects: the labels that tell nodes of the group.
        labels: of the node, without its name.
        taints: of the node.
        amounts: ``allocatable`` and ``capacity`` of the node; empty if no node of the group is known.
        specs: of the node's slices, as in a node template.
        origins: where the slices come from, for people; empty: nothing is known of them.
    """

    group: str
    selects: Mapping[str, str]
    labels: Mapping[str, str]
    taints: Sequence[RawObject]
    amounts: Mapping[str, Mapping[str, str]]
    specs: Sequence[Mapping[str, Any]]
    origins: Sequence[str]

    def objects(self, node_name: str) -> RawObject:
        """A list with the Node and its ResourceSlices.

        Args:
            node_name: of the node that is described.
        """
        labels = {**self.labels, HOSTNAME: node_name}
        spec = {"taints": list(self.taints)} if self.taints else {}
        node: RawObject = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node_name, "labels": labels},
            "spec": spec,
            "status": dict(self.amounts),
        }
        items = [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": f"{node_name}-{number}"},
                "spec": each,
            }
            for number, each in enumerate(of_node(self.specs, node_name))
        ]
        return {"apiVersion": "v1", "kind": "List", "items": [node, *items]}

    def settings(self) -> RawObject:
        """A file of node templates with this one."""
        entry = {"name": self.group, "labels": dict(self.selects), "slices": [dict(each) for each in self.specs]}
        return {"nodeTemplates": [entry]}


def describe(
    group: str, catalog: Catalog, snapshot: Snapshot, nodes: Iterable[RawObject], slices: Iterable[RawObject]
) -> NodeDescription:
    """A new node of a group.

    Args:
        group: a value of the catalog's label for groups, or the name of a template.
        catalog: what is known of nodes to come.
        snapshot: the cluster, which the catalog learns from.
        nodes: of the cluster.
        slices: of the cluster.

    Raises:
        UnknownGroupError: no node and no template is of the group.
    """
    nodes = list(nodes)
    selects = _selects(group, catalog, nodes)
    own = [each for each in nodes if selects.items() <= _labels(each).items()]
    labels = {**selects, **_common(map(_labels, own))}
    blueprints = Supply(catalog, snapshot).blueprints(Node("", labels))
    written = {each.blueprint: each.specs for each in catalog.templates}
    specs: list[Mapping[str, Any]] = []
    for each in blueprints:
        specs += written[each] if each in written else _learned(each, slices)
    return NodeDescription(
        group,
        selects,
        {name: value for name, value in labels.items() if name != HOSTNAME},
        _taints(own),
        _amounts(own),
        specs,
        [each.origin for each in blueprints],
    )


def _selects(group: str, catalog: Catalog, nodes: Iterable[RawObject]) -> Mapping[str, str]:
    """The labels that tell nodes of a group."""
    label = catalog.group_label
    values = {_labels(each)[label] for each in nodes if label in _labels(each)} if label else set()
    templates = {each.name: each.labels for each in catalog.templates}
    if group in values:
        return {label: group}
    if group in templates:
        return templates[group]
    text = f"no node template is called {shown(group)}"
    if label:
        text += f", and no node has the label {label} with this value"
    else:
        text += ", and nothing is learned from nodes: autoscaler.learnFromLabel is not set"
    raise UnknownGroupError(text + hint(group, {*values, *templates}))


def _learned(blueprint: Blueprint, slices: Iterable[RawObject]) -> list[Mapping[str, Any]]:
    """The specs of a real node's slices, as a template has them."""
    names = {each.name: number for number, each in enumerate(blueprint.slices)}
    own = sorted((each for each in slices if _name(each) in names), key=lambda each: names[_name(each)])
    return [_template_spec(each["spec"], blueprint.node) for each in own]


def _template_spec(spec: Mapping[str, Any], node_name: str) -> Mapping[str, Any]:
    """A slice's spec with the placeholder where the node's name stands, and without what a template may leave out."""
    found = {name: value for name, value in spec.items() if name not in {"nodeName", "pool"}}
    pool = spec["pool"]["name"]
    if pool != node_name:
        found["pool"] = {"name": f"{NODE_NAME}/{pool}"}
    if "devices" in spec:
        found["devices"] = [_template_device(each, node_name) for each in spec["devices"]]
    return found


def _template_device(device: Mapping[str, Any], node_name: str) -> Mapping[str, Any]:
    basic = device.get("basic")  # v1beta1
    device = {**{name: value for name, value in device.items() if name != "basic"}, **(basic or {})}
    if "attributes" not in device:
        return device
    attributes = {name: _with_placeholder(value, node_name) for name, value in device["attributes"].items()}
    return {**device, "attributes": attributes}


def _with_placeholder(value: Any, node_name: str) -> Any:  # noqa: ANN401 - JSON
    """An attribute. As in a blueprint, only a text that is the node's name as a whole is meant."""
    if isinstance(value, list):
        return [_with_placeholder(each, node_name) for each in value]
    if isinstance(value, dict):
        return {kind: _with_placeholder(each, node_name) for kind, each in value.items()}
    return NODE_NAME if value == node_name else value


def _name(obj: RawObject) -> str:
    return str(obj["metadata"]["name"])


def _labels(node: RawObject) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def _common(maps: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """What is in all of the maps."""
    first, *others = [*maps] or [{}]
    return {name: value for name, value in first.items() if all(each.get(name) == value for each in others)}


def _taints(nodes: Sequence[RawObject]) -> list[RawObject]:
    """The taints that all of the nodes have, and that do not tell a node's condition."""
    found: Counter[tuple[str, str, str]] = Counter()
    for node in nodes:
        taints = node.get("spec", {}).get("taints") or ()
        found.update({(each["key"], each.get("value", ""), each["effect"]) for each in taints})
    common = sorted(
        each for each, count in found.items() if count == len(nodes) and not each[0].startswith(OF_KUBERNETES)
    )
    return [{"key": key, **({"value": value} if value else {}), "effect": effect} for key, value, effect in common]


def _amounts(nodes: Sequence[RawObject]) -> Mapping[str, Mapping[str, str]]:
    """The least of each amount that all of the nodes have."""
    found: dict[str, Mapping[str, str]] = {}
    for field in ("allocatable", "capacity"):
        each_of = [node.get("status", {}).get(field) or {} for node in nodes]
        names = set.intersection(*map(set, each_of)) if each_of else set()
        if names:
            found[field] = {
                name: min((str(amounts[name]) for amounts in each_of), key=lambda text: Quantity.parse(text).nano)
                for name in sorted(names)
            }
    return found
