"""Templates of nodes that do not exist yet: written ones, or learned from a node of the same group.

A `Blueprint` has the devices that a new node would bring: slices of another node, under a new name. Only what a node
brings itself is copied. Devices that are attached to the network are the cluster's: they are there already, and another
node adds none.

The file of templates is YAML; `config/node-templates.yaml` shows all of it. A node has the slices of every template
whose labels it carries, so that one template can bring GPUs and another NICs. The `Catalog` has what nodes of some
labels bring.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from allocator import (
    AttributeValue,
    Device,
    Features,
    InvalidObjectError,
    Inventory,
    Node,
    Placement,
    PoolId,
    Problem,
    Slice,
    parse_slice,
)
from allocator.model.validation import schema_problems, validate
from allocator.pools import NodePool
from allocator.tools import Fields, shown
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.config.settings import Settings
from extender.tools.files import UnreadableError, read_text
from extender.tools.user_error import UserError, suggestion
from extender.tools.yamltext import SyntaxProblem, documents

Rename = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Slices that are published for one node, complete and of one generation.

    Attributes:
        origin: where they come from, for people.
        node: the text that stands for the node's name in them.
        is_placeholder: this text is a placeholder, which may be part of a longer text; otherwise only a text that is
            the name as a whole is meant, and a pool of another name gets one of its own.
        slices: by name.
    """

    origin: str
    node: str
    is_placeholder: bool
    slices: tuple[Slice, ...]
    drivers: frozenset[str] = field(init=False)
    device_count: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "drivers", frozenset(each.pool.driver for each in self.slices))
        object.__setattr__(self, "device_count", sum(len(each.devices) for each in self.slices))

    def build(self, node_name: str) -> Iterator[Slice]:
        """The slices that a node of this name would publish. Their names are such as no real slice can have."""
        # Devices that share their attributes share them afterwards, too.
        renamed: dict[int, Mapping[str, AttributeValue]] = {}
        for index, each in enumerate(self.slices):
            pool = PoolId(each.pool.driver, self._pool_name(each.pool.pool, node_name))
            yield replace(
                each,
                name=f"{node_name}/{self.origin}/{index:04}",
                pool=pool,
                placement=Placement(node_name=node_name),
                devices=tuple(self._device(device, pool, node_name, renamed) for device in each.devices),
            )

    def hardware(self) -> dict[str, int]:
        """The hardware: the number of devices by driver, and capacities by qualified name (units of 10**-9).

        What can be had in parts counts once, by its counters.
        """
        found: Counter[str] = Counter()
        for each in self.slices:
            driver = each.pool.driver
            whole = [device for device in each.devices if not device.consumes_counters]
            found[driver] += len(whole) + len(each.counter_sets)
            for device in whole:
                found.update({name: amount.nano for name, amount in device.quantities.items()})
            for _, counters in each.counter_sets:
                found.update({f"{driver}/{name}": amount.nano for name, amount in counters.items()})
        return found

    def _pool_name(self, name: str, node_name: str) -> str:
        renamed = self._renamed(name, node_name)
        return f"{node_name}/{name}" if renamed == name else renamed

    def _device(
        self, device: Device, pool: PoolId, node_name: str, renamed: dict[int, Mapping[str, AttributeValue]]
    ) -> Device:
        attributes = renamed.get(id(device.attributes))
        if attributes is None:
            attributes = renamed[id(device.attributes)] = self._attributes(device.attributes, node_name)
        return replace(device, id=device.id._replace(pool=pool.pool), attributes=attributes)

    def _attributes(self, attributes: Mapping[str, AttributeValue], node_name: str) -> Mapping[str, AttributeValue]:
        def rename(text: str) -> str:
            return self._renamed(text, node_name)

        changed = {key: new for key, old in attributes.items() if (new := _renamed_value(old, rename)) != old}
        return {**attributes, **changed} if changed else attributes

    def _renamed(self, text: str, node_name: str) -> str:
        if self.is_placeholder:
            return text.replace(self.node, node_name)
        return node_name if text == self.node else text


def learned(group: Iterable[Node], snapshot: Snapshot, features: Features) -> Blueprint | None:
    """A blueprint from the best of some real nodes: most drivers, most devices, fewest tainted; None if none will do.

    Allocations are not part of a blueprint. A node with a pool that is being published is passed over.
    """
    found = [each for node in group if (each := _of_node(node, snapshot, features)) is not None]
    return min(found, key=_rank, default=None)


def local_pools(node: Node, snapshot: Snapshot, features: Features) -> dict[PoolId, NodePool | None]:
    """The pools with slices for just this node, as the node sees them; None: it sees only what is being replaced."""
    ids = sorted(snapshot.inventory.local.get(node.name, ()))
    return {pool: snapshot.inventory.pools[pool].at(node, features) for pool in ids}


def _of_node(node: Node, snapshot: Snapshot, features: Features) -> Blueprint | None:
    pools = local_pools(node, snapshot, features)
    if not pools or any(pool is None or pool.problem for pool in pools.values()):
        return None
    slices = [each for pool in pools for each in _newest(snapshot.inventory.pools[pool].slices, node.name)]
    return Blueprint(f"learned from node {node.name}", node.name, is_placeholder=False, slices=tuple(slices))


def _newest(slices: Iterable[Slice], node_name: str) -> list[Slice]:
    """The slices of a pool that are for the node, of the newest generation, as a pool of their own."""
    own = [each for each in slices if each.placement is not None and each.placement.node_name == node_name]
    newest = max(each.generation for each in own)
    own = [each for each in own if each.generation == newest]
    return [replace(each, slice_count=len(own)) for each in own]


def _rank(blueprint: Blueprint) -> tuple[int, int, int, str]:
    tainted = sum(bool(device.taints) for each in blueprint.slices for device in each.devices)
    return (-len(blueprint.drivers), -blueprint.device_count, tainted, blueprint.node)


def _renamed_value(value: AttributeValue, rename: Rename) -> AttributeValue:
    if isinstance(value, str):
        return rename(value)
    if isinstance(value, tuple):
        texts = tuple(rename(each) for each in value if isinstance(each, str))
        return texts if len(texts) == len(value) else value
    return value


def with_new_node(node: NodeObject, blueprints: Iterable[Blueprint], fork: Snapshot) -> Snapshot:
    """The cluster with one more node, which brings the devices of some blueprints."""
    fork = fork.with_node(node)
    for blueprint in blueprints:
        for each in blueprint.build(node.name):
            fork = fork.with_slice(each)
    return fork


def without_devices(node_name: str, blueprints: Iterable[Blueprint], fork: Snapshot) -> Snapshot:
    """The cluster in which such a node brings the devices of these blueprints no more."""
    for blueprint in blueprints:
        for each in blueprint.build(node_name):
            fork = fork.without_slice(each.name)
    return fork


NODE_NAME: Final = "$(NODE_NAME)"
"""Stands for the node's name in pool names and attributes."""

_SAMPLE: Final = "node-1.example.com"
"""Names of nodes may have dots; those of devices may not, so they can't have a node's in them."""

_TOP: Final = "nodeTemplates"
_KEYS: Final = frozenset({"name", "labels", "slices"})
_PLACEMENTS: Final = ("allNodes", "nodeSelector", "perDeviceNodeSelection")


class TemplateError(UserError):
    """Node templates that can't be used; all of their problems, each naming template, field and value."""


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """The slices that nodes with all of the labels bring.

    Attributes:
        specs: of its ResourceSlices, as written.
    """

    name: str
    labels: Mapping[str, str]
    blueprint: Blueprint
    specs: tuple[Mapping[str, object], ...] = ()

    def matches(self, node: Node) -> bool:
        """Whether the node carries the labels."""
        return all(node.labels.get(key) == value for key, value in self.labels.items())


def load_templates(text: str, *, file: str) -> tuple[NodeTemplate, ...]:
    """The templates of a file.

    Args:
        text: the file's content.
        file: its name, for messages.

    Raises:
        TemplateError: it can't be read, breaks a rule of slices, or two templates contradict each other.
    """
    problems: list[Problem] = []
    templates = [template for each in _entries(text, problems) if (template := _template(each)) is not None]
    found = [str(problem) for problem in problems]
    found += _conflicts(templates)
    if found:
        raise TemplateError(*(f"{file}: {problem}" for problem in found))
    return tuple(templates)


def _entries(text: str, problems: list[Problem]) -> Iterator[Fields]:
    for document in documents(text):
        if isinstance(document, SyntaxProblem):
            problems.append(Problem("", str(document)))
        elif isinstance(document, dict):
            top = Fields(document, "", problems)
            _refuse_unknown(top, frozenset({_TOP}))
            yield from top.children(_TOP)
        elif document is not None:
            problems.append(Problem("", f"expected {_TOP} at the top, not {shown(document)}"))


def _template(fields: Fields) -> NodeTemplate | None:
    """A template, or None where something is wrong with it, which is noted."""
    before = len(fields.problems)
    _refuse_unknown(fields, _KEYS)
    name = fields.required_text("name")
    labels = fields.text_mapping("labels")
    if not labels and not fields.data.get("labels"):
        fields.problem("labels", "is required: the labels that tell such nodes")
    if not fields.children("slices") and not fields.has("slices"):
        fields.problem("slices", "is required: the spec of each slice that such a node publishes; [] for none")
    if len(fields.problems) > before:
        return None
    own = Fields(fields.data, f"template {name}", fields.problems)
    slices = own.children("slices")
    blueprint = _blueprint(name, slices)
    if len(fields.problems) > before:
        return None
    return NodeTemplate(name, labels, blueprint, tuple(each.data for each in slices))


def _blueprint(name: str, specs: list[Fields]) -> Blueprint:
    """The slices; what is wrong with them is noted."""
    pools = [_pool_name(spec) for spec in specs]
    slices = []
    for index, (spec, pool) in enumerate(zip(specs, pools, strict=True)):
        whole = complete(spec.data, pool[1], pools.count(pool), NODE_NAME)
        problems = [*_placement_problems(spec), *_rule_problems(whole)]
        spec.problems += (Problem(f"{spec.path}.{_inner(each.path)}", each.message) for each in problems)
        if not problems:
            slices.append(parse_slice(_object(f"{index:04}", whole)))
    blueprint = Blueprint(f"template {name}", NODE_NAME, is_placeholder=True, slices=tuple(slices))
    if specs and len(slices) == len(specs):
        specs[0].problems += (Problem(f"template {name}", each) for each in _whole_problems(blueprint))
    return blueprint


def complete(spec: Mapping[str, object], pool: str, slice_count: int, node_name: str) -> dict[str, object]:
    """The spec of a slice with what a template may leave out."""
    of_pool = spec.get("pool")
    written = of_pool if isinstance(of_pool, dict) else {}
    counts = {"generation": 1, "resourceSliceCount": slice_count}
    return {**spec, "nodeName": node_name, "pool": {**counts, **written, "name": pool}}


def of_node(specs: Sequence[Mapping[str, Any]], node_name: str) -> list[dict[str, Any]]:
    """The specs of slices as a node of this name publishes them.

    Args:
        specs: of valid templates, as written.
        node_name: of the node.
    """
    pools = [(each["driver"], (each.get("pool") or {}).get("name") or NODE_NAME) for each in specs]
    whole = (complete(each, pool[1], pools.count(pool), NODE_NAME) for each, pool in zip(specs, pools, strict=True))
    return [{key: rendered(value, node_name) for key, value in each.items()} for each in whole]


def _pool_name(spec: Fields) -> tuple[str, str]:
    """Driver and pool of a slice, which is the node's own unless it says so."""
    return spec.text("driver"), spec.child("pool").text("name") or NODE_NAME


def _placement_problems(spec: Fields) -> Iterator[Problem]:
    for name in _PLACEMENTS:
        if spec.has(name):
            yield Problem(
                name, "devices that are attached to the network are the cluster's: a node does not bring them"
            )
    if spec.text("nodeName") not in {"", NODE_NAME}:
        yield Problem("nodeName", f"{shown(spec.text('nodeName'))} is not {NODE_NAME}, which it is when left out")
    if NODE_NAME not in _pool_name(spec)[1]:
        yield Problem("pool.name", f"must contain {NODE_NAME}, or all such nodes would share one pool")


def _rule_problems(spec: Mapping[str, object]) -> tuple[Problem, ...]:
    """What an API server would have against the slice of a node."""
    sample = rendered(spec, _SAMPLE)
    obj = _object("sample", sample if isinstance(sample, dict) else {})
    try:
        parse_slice(obj)
    except InvalidObjectError as error:
        return error.problems
    return schema_problems(obj) + validate(obj)


def _whole_problems(blueprint: Blueprint) -> Iterator[str]:
    """The problem with the slices taken together, as a node would publish them."""
    built = tuple(blueprint.build(_SAMPLE))
    if NODE_NAME in repr(built):
        yield f"{NODE_NAME} may stand in pool names and attributes, nowhere else"
    for pool in Inventory.of(built).for_node(Node(_SAMPLE), Features()):
        if pool.problem:
            yield f"pool {pool.id}: {pool.problem}".replace(_SAMPLE, NODE_NAME)


def _conflicts(templates: list[NodeTemplate]) -> Iterator[str]:
    """Templates of one name, and templates that would both say what a driver publishes for one node."""
    for one, other in combinations(templates, 2):
        if one.name == other.name:
            yield f"template {one.name} is there twice"
            continue
        drivers = sorted(one.blueprint.drivers & other.blueprint.drivers)
        if drivers and all(other.labels.get(key, value) == value for key, value in one.labels.items()):
            yield (
                f"templates {one.name} and {other.name} contradict each other: a node may carry the labels of both, "
                f"and both bring devices of driver {drivers[0]}; give one label different values in them"
            )


def _refuse_unknown(fields: Fields, known: frozenset[str]) -> None:
    for key in fields.data:
        if key not in known:
            fields.problem(key, f"unknown key{suggestion(key, known)}")


def _inner(path: str) -> str:
    return path.removeprefix("spec.")


def _object(name: str, spec: Mapping[str, object]) -> dict[str, object]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def rendered(value: object, node_name: str) -> object:
    """A JSON value with the name of a node in place of the placeholder."""
    if isinstance(value, str):
        return value.replace(NODE_NAME, node_name)
    if isinstance(value, list):
        return [rendered(each, node_name) for each in value]
    if isinstance(value, dict):
        return {key: rendered(each, node_name) for key, each in value.items()}
    return value


OF_KUBERNETES: Final = "node.kubernetes.io/"
"""Prefix of the taints by which Kubernetes tells the condition of a node. They say nothing of a group."""

HOSTNAME: Final = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Group:
    """A group of nodes to which an autoscaler may add one.

    Attributes:
        name: of the template, or the value of the label for groups.
        labels: tell nodes of the group.
        node: as a new node is, but for its name.
    """

    name: str
    labels: Mapping[str, str]
    node: NodeObject

    def node_called(self, name: str) -> NodeObject:
        """A new node of the group."""
        labels = {**self.node.node.labels, HOSTNAME: name}
        return replace(self.node, node=replace(self.node.node, name=name, labels=labels))


@dataclass(frozen=True, slots=True)
class Catalog:
    """All that is known of nodes to come.

    Attributes:
        group_label: the label whose value tells which group a node is of; empty: nothing is learned from real nodes.
    """

    templates: tuple[NodeTemplate, ...] = ()
    group_label: str = ""
    features: Features = field(default_factory=Features)


@dataclass(frozen=True, slots=True, eq=False)
class Supply:
    """A catalog, and the real nodes that it can learn from.

    Attributes:
        snapshot: the cluster without any node that does not exist.
    """

    catalog: Catalog
    snapshot: Snapshot
    _models: dict[tuple[str, str], Blueprint | None] = field(default_factory=dict)

    def blueprints(self, node: Node) -> Sequence[Blueprint]:
        """What such a node brings. Templates go before what other nodes of its group publish."""
        found = [template.blueprint for template in self.catalog.templates if template.matches(node)]
        if found:
            return found
        group = self._group(node)
        if group is None:
            return []
        apart = node.name if node.name in self.snapshot.nodes else ""
        if (group, apart) not in self._models:
            alike = (each.node for each in self.group_of(node))
            self._models[group, apart] = learned(alike, self.snapshot, self.catalog.features)
        model = self._models[group, apart]
        return [] if model is None else [model]

    def groups(self) -> Iterator[Group]:
        """All groups of which something is known: those of templates, and those of real nodes without a template."""
        for each in self.catalog.templates:
            yield Group(each.name, each.labels, NodeObject(Node(each.name, each.labels)))
        own: dict[str, list[NodeObject]] = {}
        for node in self.snapshot.nodes.values():
            name = self._group(node.node)
            if name is not None and not any(each.matches(node.node) for each in self.catalog.templates):
                own.setdefault(name, []).append(node)
        for name, nodes in sorted(own.items()):
            yield Group(name, {self.catalog.group_label: name}, _alike(nodes))

    def group_of(self, node: Node) -> Iterator[NodeObject]:
        """The other real nodes of a node's group; none if the catalog has no label for groups."""
        group, label = self._group(node), self.catalog.group_label
        if group is not None:
            for each in self.snapshot.nodes.values():
                if each.node.labels.get(label) == group and each.name != node.name:
                    yield each

    def _group(self, node: Node) -> str | None:
        return node.labels.get(self.catalog.group_label) if self.catalog.group_label else None


def _alike(nodes: Sequence[NodeObject]) -> NodeObject:
    """The smallest of some nodes, with the labels and taints that all of them have."""
    first, *others = nodes
    labels = {
        name: value
        for name, value in first.node.labels.items()
        if all(each.node.labels.get(name) == value for each in others)
    }
    taints = tuple(
        taint
        for taint in first.taints
        if not taint.key.startswith(OF_KUBERNETES) and all(taint in each.taints for each in others)
    )
    least = min(nodes, key=lambda node: (node.cpu is None, node.cpu))
    return replace(least, node=replace(first.node, labels=labels), taints=taints)


def read_catalog(settings: Settings) -> Catalog:
    """The catalog of nodes to come; reads the file with their templates.

    Raises:
        TemplateError: the file can't be read, or is invalid.
    """
    wanted = settings.autoscaler
    path = wanted.node_templates
    try:
        text = read_text(Path(path)) if path else ""
    except UnreadableError as error:
        raise TemplateError(f"autoscaler.nodeTemplates: {path}: {error}") from error
    return Catalog(load_templates(text, file=path), wanted.learn_from_label)
