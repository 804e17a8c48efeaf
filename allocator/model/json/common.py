"""Fields that several kinds share: metadata, node selectors, taints, tolerations, opaque configuration."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from allocator.model.allocations import OpaqueConfig
from allocator.model.devices import DeviceTaint, Toleration
from allocator.model.nodes import Node, NodeSelector, NodeSelectorTerm, Requirement
from allocator.tools import jsontext
from allocator.tools.fields import Fields, ObjectReader

GROUP: Final = "resource.k8s.io"
VERSIONS: Final = tuple(f"{GROUP}/{version}" for version in ("v1", "v1beta2", "v1beta1"))
V1BETA1: Final = f"{GROUP}/v1beta1"


def parse_node(obj: Mapping[str, object]) -> Node:
    """A core/v1 Node.

    Raises:
        InvalidObjectError: a field has the wrong type.
    """
    reader = ObjectReader("Node", obj, ("v1",))
    labels = reader.metadata.text_mapping("labels")
    features = frozenset(reader.top.child("status").texts("declaredFeatures"))
    reader.finish()
    return Node(reader.name, labels, features)


def read_node_selector(fields: Fields) -> NodeSelector:
    """A core/v1 NodeSelector."""
    name = _only_name(fields.data)
    if name is not None:
        return _selector_of_node(name)
    return NodeSelector(
        tuple(
            NodeSelectorTerm(_requirements(term, "matchExpressions"), _requirements(term, "matchFields"))
            for term in fields.children("nodeSelectorTerms")
        )
    )


_ONLY_NAME: Final = {"key": "metadata.name", "operator": "In"}


def _only_name(selector: Mapping[str, object]) -> str | None:
    """The node of a selector as allocations of local devices have it; None if it is another one."""
    match selector.get("nodeSelectorTerms"):
        case [{"matchFields": [{"values": [str(name)], **of}], **rest}] if name and of == _ONLY_NAME and not rest:
            return name
    return None


@lru_cache(maxsize=10_000)
def _selector_of_node(name: str) -> NodeSelector:
    """The claims on one node share it."""
    requirement = Requirement("metadata.name", "In", (name,))
    return NodeSelector((NodeSelectorTerm((), (requirement,)),))


def node_selector_or_none(fields: Fields, name: str) -> NodeSelector | None:
    """The selector in a field, or None if it is absent."""
    selector = fields.child_or_none(name)
    return None if selector is None else read_node_selector(selector)


def _requirements(term: Fields, name: str) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(r.required_text("key"), r.required_text("operator"), r.texts("values")) for r in term.children(name)
    )


def read_taint(fields: Fields) -> DeviceTaint:
    """A DeviceTaint."""
    return DeviceTaint(
        fields.required_text("key"),
        fields.required_text("effect"),
        fields.text("value"),
        fields.time_or_none("timeAdded"),
    )


def read_tolerations(fields: Fields) -> tuple[Toleration, ...]:
    """The tolerations of a request or result; the default operator is Equal."""
    return tuple(map(_toleration, fields.children("tolerations")))


def _toleration(fields: Fields) -> Toleration:
    key, operator, value, effect = fields.each_text("key", "operator", "value", "effect")
    seconds = fields.integer("tolerationSeconds") if fields.has("tolerationSeconds") else None
    return Toleration(key, operator or "Equal", value, effect, seconds)


def opaque(fields: Fields) -> OpaqueConfig:
    """The opaque part of a configuration; its driver is empty for an unknown kind of configuration."""
    part = fields.child_or_none("opaque")
    if part is None:
        return OpaqueConfig("", "")
    parameters = part.data.get("parameters")
    text = "" if parameters is None else jsontext.dumps(parameters)
    return OpaqueConfig(part.required_text("driver"), text)


def selectors(fields: Fields) -> tuple[str, ...]:
    """CEL expressions; an empty one, which never compiles, for an unknown kind of selector."""
    return tuple(selector.child("cel").text("expression") for selector in fields.children("selectors"))
