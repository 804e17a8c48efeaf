"""Scopes of a ResourceQuota: which pods count in it.

Source: the quota evaluator of pods of Kubernetes 1.36. An API server's rules for scopes are not checked here.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from allocator.tools import Fields

_TERMINATING: Final = "Terminating"
_BEST_EFFORT: Final = "BestEffort"
_PRIORITY_CLASS: Final = "PriorityClass"
_CROSS_NAMESPACE: Final = "CrossNamespacePodAffinity"
_OPPOSITES: Final = {"NotTerminating": _TERMINATING, "NotBestEffort": _BEST_EFFORT}
_NAMES: Final = frozenset({_TERMINATING, _BEST_EFFORT, _PRIORITY_CLASS, _CROSS_NAMESPACE, *_OPPOSITES})
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_COMPUTE: Final = frozenset({"cpu", "memory"})
"""A pod that requests or limits one of these resources is not of the class BestEffort."""


class QuotaScope(NamedTuple):
    """A requirement on a pod; ``operator`` and ``values`` are about its priority class."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def has(self, spec: Mapping[str, object]) -> bool:
        """Whether a pod with this spec is in the scope."""
        if self.name in _OPPOSITES:
            return not QuotaScope(_OPPOSITES[self.name]).has(spec)
        fields = Fields(spec, "spec", [])
        match self.name:
            case "Terminating":
                return fields.has("activeDeadlineSeconds") and fields.integer("activeDeadlineSeconds") >= 0
            case "BestEffort":
                return not any(_computes(each) for each in _containers(fields))
            case "CrossNamespacePodAffinity":
                return any(each.has("namespaceSelector") or each.items("namespaces") for each in _terms(fields))
        return self._has_priority(fields.text("priorityClassName"))

    def _has_priority(self, name: str) -> bool:
        match self.operator:
            case "In":
                return name in self.values
            case "NotIn":
                return name not in self.values
            case "DoesNotExist":
                return not name
        return bool(name)


def read_scopes(spec: Fields) -> tuple[QuotaScope, ...]:
    """The scopes in the spec of a ResourceQuota; notes those that do not exist."""
    found = [QuotaScope(name) for name in spec.texts("scopes")]
    for each in spec.child("scopeSelector").children("matchExpressions"):
        found.append(QuotaScope(each.required_text("scopeName"), each.required_text("operator"), each.texts("values")))
        if found[-1].operator not in _OPERATORS:
            each.problem("operator", f'"{found[-1].operator}" is none of {", ".join(sorted(_OPERATORS))}')
    for scope in found:
        if scope.name not in _NAMES:
            spec.problem("scopes", f'"{scope.name}" is none of {", ".join(sorted(_NAMES))}')
    return tuple(found)


def _containers(spec: Fields) -> Iterator[Fields]:
    for name in ("initContainers", "containers"):
        yield from spec.children(name)


def _computes(container: Fields) -> bool:
    resources = container.child("resources")
    return any(not _COMPUTE.isdisjoint(resources.mapping(name)) for name in ("requests", "limits"))


def _terms(spec: Fields) -> Iterator[Fields]:
    """The terms of affinity and anti-affinity between pods."""
    for name in ("podAffinity", "podAntiAffinity"):
        affinity = spec.child("affinity").child(name)
        yield from affinity.children("requiredDuringSchedulingIgnoredDuringExecution")
        for weighted in affinity.children("preferredDuringSchedulingIgnoredDuringExecution"):
            yield weighted.child("podAffinityTerm")
