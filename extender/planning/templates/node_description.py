"""What a new node of a group is like, as objects of Kubernetes and as a node template of the settings.

The slices are those that the service counts on: of templates, or learned from a node of the group. The labels and the
taints are those that all nodes of the group have. Of each amount, it is the least.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocator import Node, Quantity
from allocator.tools import hint, shown
from extender.cluster.snapshot import Snapshot
from extender.kube.api import RawObject
from extender.planning.templates.blueprints import Blueprint
from extender.planning.templates.catalog import HOSTNAME, OF_KUBERNETES, Catalog, Supply
from extender.planning.templates.node_templates import NODE_NAME, of_node
from extender.tools.user_error import UserError


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
    """Those that all of the nodes have, and that do not tell a node's condition."""
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
