"""A workload: an object with a pod template, and what its controller makes of it."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from allocator import raise_if_invalid
from allocator.tools import Fields
from extender.cluster.objects.nodes import NodeObject

JsonObject = dict[str, Any]

MOST_PODS: Final = 50_000
"""Pods of one workload. A controller has no limit, but memory has."""

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes makes names of these: no vowels, so that no words come out."""

_LONGEST_PREFIX: Final = 58
"""Of a name that gets a suffix: an API server cuts longer ones."""

_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class NotRunError(Exception):
    """The workload makes no pods now; the text says why."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload, whose controller has the rules.

    Attributes:
        data: the object; it has a name and a namespace.
        children: objects of the manifests that it controls already.
        nodes: of the cluster, in the order of the manifests.
    """

    data: Mapping[str, Any]
    children: Sequence[Mapping[str, Any]]
    nodes: Sequence[NodeObject]

    @property
    def kind(self) -> str:
        """The kind."""
        return str(self.data["kind"])

    @property
    def name(self) -> str:
        """The name."""
        return str(self.data["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The namespace."""
        return str(self.data["metadata"]["namespace"])

    @property
    def spec(self) -> Fields:
        """The spec; who has read it calls `check`."""
        return Fields(self.data, "", []).child("spec")

    def check(self, fields: Fields) -> None:
        """Raises InvalidObjectError: problems were noted while the fields were read."""
        raise_if_invalid(self.kind, f"{self.namespace}/{self.name}", fields.problems)

    def number(self, fields: Fields, name: str, default: int) -> int:
        """A number of pods, objects or indexes; a wrong one is noted as a problem."""
        found = fields.integer(name, default)
        if not 0 <= found <= MOST_PODS:
            fields.problem(name, f"{found} is not a number from 0 to {MOST_PODS}")
        return found

    def living(self) -> list[Mapping[str, Any]]:
        """The pods that it has already and that are not finished."""
        pods = (child for child in self.children if child["kind"] == "Pod")
        return [pod for pod in pods if (pod.get("status") or {}).get("phase") not in _FINISHED]

    def has(self, kind: str) -> bool:
        """Whether it controls an object of a kind already."""
        return any(child["kind"] == kind for child in self.children)

    def child(self, kind: str, api_version: str, name: str, template: Fields, **more: Mapping[str, str]) -> JsonObject:
        """An object of a template.

        Args:
            kind: of the new object.
            api_version: of the new object.
            name: of the new object.
            template: with metadata and spec.
            more: labels and annotations besides those of the template.

        Raises:
            InvalidObjectError: the template cannot be read.
        """
        given, spec = template.child("metadata"), template.mapping("spec")
        maps = {field: {**given.text_mapping(field), **more.get(field, {})} for field in ("labels", "annotations")}
        self.check(template)
        own = self.data["metadata"]
        metadata: JsonObject = {"name": name, "namespace": self.namespace, **{k: v for k, v in maps.items() if v}}
        if "creationTimestamp" in own:
            metadata["creationTimestamp"] = own["creationTimestamp"]
        owner = {"apiVersion": self.data["apiVersion"], "kind": self.kind, "name": self.name, "controller": True}
        metadata["ownerReferences"] = [owner | {"uid": own["uid"]} if "uid" in own else owner]
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

    def pod(self, name: str, **more: Mapping[str, str]) -> JsonObject:
        """A pod of ``spec.template``; see `child`."""
        return self.child("Pod", "v1", name, self.spec.child("template"), **more)

    def suffixed(self, prefix: str, *of: object) -> str:
        """A name as an API server makes it of a prefix; the suffix depends on the workload alone."""
        seed = orjson.dumps([self.kind, self.namespace, self.name, prefix, *map(str, of)])
        return f"{prefix[:_LONGEST_PREFIX]}{encoded(hashlib.sha256(seed).digest()[:5])}"


def encoded(values: Iterable[int]) -> str:
    """Numbers as letters that names are made of."""
    return "".join(_LETTERS[value % len(_LETTERS)] for value in values)


def labelled(template: Fields, labels: Mapping[str, str]) -> JsonObject:
    """A pod template with more labels."""
    metadata = template.child("metadata")
    return {**template.data, "metadata": {**metadata.data, "labels": {**metadata.text_mapping("labels"), **labels}}}
