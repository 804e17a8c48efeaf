"""ResourceClasses as KEP-14 writes them: without ``apiVersion``, and with three names for one field."""

from collections.abc import Mapping
from typing import Final

from extender.cluster.objects.resource_classes import VERSION
from extender.kube.resources import RESOURCE_CLASSES

_SELECTOR: Final = "resourceSelector"
_NAMES: Final = (_SELECTOR, "labelSelector", "resourceSelectorRequirements")
"""The names of the field in the examples of the text."""


def from_text_form(obj: Mapping[str, object]) -> dict[str, object]:
    """A ResourceClass without ``apiVersion`` as an object of our kind; any other object as it is."""
    if obj.get("kind") != RESOURCE_CLASSES.kind or obj.get("apiVersion") is not None:
        return dict(obj)
    spec = obj.get("spec")
    if isinstance(spec, dict):
        written = [name for name in _NAMES if name in spec]
        if len(written) == 1:
            spec = {_SELECTOR if name in written else name: value for name, value in spec.items()}
    return {**obj, "apiVersion": VERSION, "spec": spec}
