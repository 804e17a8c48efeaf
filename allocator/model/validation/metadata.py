"""Rules for the metadata of every kind: names, labels, annotations."""

from collections.abc import Callable, Mapping
from typing import Final

from allocator.model import field_rules as rules
from allocator.tools.fields import Fields
from allocator.tools.names import dns_label, dns_subdomain, label_key, label_value, utf8_length

_LONGEST_RESOURCE: Final = 63
_MAX_ANNOTATIONS: Final = 256 * 1024


def _in_a_path(name: str) -> str:
    """The problem with a name that only has to stand in a path."""
    return "cannot stand in the path of an API call" if name in {".", ".."} or set(name) & set("/%") else ""


def _in_a_resource(name: str) -> str:
    """The problem with the name of a ResourceClass."""
    is_long = len(name) > _LONGEST_RESOURCE
    return f"is longer than {_LONGEST_RESOURCE}: a resource has the name" if is_long else dns_subdomain(name)


_NAMES: Final[Mapping[str, Callable[[str], str]]] = {
    "Namespace": dns_label,
    "PodDisruptionBudget": _in_a_path,
    "ResourceClass": _in_a_resource,
}
"""Rules for the names of kinds; the names of all others are DNS subdomains."""


def check_metadata(metadata: Fields, kind: str) -> None:
    """The metadata of an object of a kind."""
    rules.text(metadata, "name", _NAMES.get(kind, dns_subdomain))
    rules.text(metadata, "namespace", dns_label, required=False)
    check_described(metadata)


def check_described(metadata: Fields) -> None:
    """The labels and annotations of an object, or of a template for objects."""
    check_labels(metadata, "labels")
    size = 0
    for key, value in metadata.child("annotations").data.items():
        rules.told(metadata, f"annotations[{key}]", key, label_key(key.lower()))
        size += utf8_length(key) + (utf8_length(value) if isinstance(value, str) else 0)
    if size > _MAX_ANNOTATIONS:
        metadata.problem("annotations", f"have {size} bytes, more than {_MAX_ANNOTATIONS}")


def check_labels(fields: Fields, name: str) -> None:
    """A map of labels."""
    for key, value in fields.child(name).data.items():
        rules.told(fields, f"{name}[{key}]", key, label_key(key))
        if isinstance(value, str):
            rules.told(fields, f"{name}[{key}]", value, label_value(value))
