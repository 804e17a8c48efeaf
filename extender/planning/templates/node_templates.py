"""Node templates: which slices a node with certain labels will publish, before there is such a node.

The file is YAML; `config/node-templates.yaml` shows all of it. A node has the slices of every template whose labels it
carries, so that one template can bring GPUs and another NICs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from allocator import Features, InvalidObjectError, Inventory, Node, Problem, parse_slice
from allocator.model.validation import schema_problems, validate
from allocator.tools import Fields, shown
from extender.planning.templates.blueprints import Blueprint
from extender.tools.user_error import UserError, suggestion
from extender.tools.yamltext import SyntaxProblem, documents

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
