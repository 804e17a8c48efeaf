"""Objects of manifests that are parameters of negotiated claims: the settings of controllers name their kinds."""

from collections.abc import Iterator, Mapping, Sequence

from extender.config.controllers import ControllerSettings, ParameterKind
from extender.fakekube.api import MemoryApi
from extender.fakekube.manifests import DEFAULT_NAMESPACE, ManifestObject
from extender.kube.api import ObjectKey
from extender.negotiation.parameters import resource_of


class ParameterObjects:
    """Finds parameters among the objects of manifests, and keeps them.

    Args:
        controllers: their settings.
        api: gets the objects.
    """

    def __init__(self, controllers: Sequence[ControllerSettings], api: MemoryApi) -> None:
        kinds = [kind for each in controllers for kind in each.parameters]
        self._kinds: Mapping[tuple[str, str], ParameterKind] = {(each.group, each.kind): each for each in kinds}
        self._api = api

    def without(self, documents: Sequence[ManifestObject]) -> Sequence[ManifestObject]:
        """The objects that are no parameters."""
        return [each for each in documents if self._kind_of(each) is None]

    def keep(self, documents: Sequence[ManifestObject]) -> None:
        """Keep those of the objects that are parameters."""
        for kind, key, each in self._found(documents):
            self._api.keep(resource_of(kind), key, each.data)

    def _found(self, documents: Sequence[ManifestObject]) -> Iterator[tuple[ParameterKind, ObjectKey, ManifestObject]]:
        for each in documents:
            kind = self._kind_of(each)
            if kind is not None:
                namespace = (each.namespace or DEFAULT_NAMESPACE) if kind.namespaced else ""
                yield kind, ObjectKey(namespace, each.name), each

    def _kind_of(self, document: ManifestObject) -> ParameterKind | None:
        if document.is_used:
            return None
        group = str(document.data["apiVersion"]).rpartition("/")[0]
        return self._kinds.get((group, document.kind))
