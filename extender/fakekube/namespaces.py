"""Namespaces of manifests: their labels."""

from collections.abc import Mapping

from allocator import ObjectReader


def parse_namespace(obj: Mapping[str, object]) -> Mapping[str, str]:
    """The labels of a core/v1 Namespace. Raises InvalidObjectError: all fields with a wrong type."""
    reader = ObjectReader("Namespace", obj, ("v1",))
    labels = reader.metadata.text_mapping("labels")
    reader.finish()
    return labels
