"""Objects as the texts of KEP-14 and KEP-3675 have them: a class without ``apiVersion``, a ConfigMap out of line."""

from collections.abc import Mapping
from typing import Final

from extender.cluster.compute_claims import CONFIG_MAP, FILE
from extender.cluster.objects.resource_classes import VERSION
from extender.kube.resources import RESOURCE_CLASSES

_SELECTOR: Final = "resourceSelector"
_NAMES: Final = (_SELECTOR, "labelSelector", "resourceSelectorRequirements")
"""The names of the field in the examples of the text."""


def from_text_form(obj: Mapping[str, object]) -> dict[str, object]:
    """A class or a ConfigMap as an object of its kind; any other object as it is.

    The class has no ``apiVersion``; the ConfigMap has its file beside ``data``, not in it.
    """
    kind, version = obj.get("kind"), obj.get("apiVersion")
    if kind == CONFIG_MAP and FILE in obj and obj.get("data") is None:
        return {**{name: value for name, value in obj.items() if name != FILE}, "data": {FILE: obj[FILE]}}
    if kind != RESOURCE_CLASSES.kind or version is not None or "driverName" in obj:
        return dict(obj)
    spec = obj.get("spec")
    if isinstance(spec, dict):
        written = [name for name in _NAMES if name in spec]
        if len(written) == 1:
            spec = {_SELECTOR if name in written else name: value for name, value in spec.items()}
    return {**obj, "apiVersion": VERSION, "spec": spec}
