"""Rules for kinds of other groups: nodes, quotas, disruption budgets and pod groups, as far as they are read.

Source: pkg/apis/core/validation and pkg/apis/policy/validation, Kubernetes 1.37.
"""

import re
from collections.abc import Mapping
from typing import Final

from allocator.model import field_rules as rules
from allocator.model.validation.amounts import amounts, is_scope_for, of_quota
from allocator.tools.fields import Fields
from allocator.tools.names import label_key, label_value
from allocator.tools.printable import shown

NODE_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_SCOPES: Final = (
    *("Terminating", "NotTerminating", "BestEffort", "NotBestEffort"),
    *("PriorityClass", "CrossNamespacePodAffinity", "VolumeAttributesClass"),
)
_WITH_VALUES: Final = frozenset({"PriorityClass", "VolumeAttributesClass"})
_CONFLICTS: Final = (("Terminating", "NotTerminating"), ("BestEffort", "NotBestEffort"))
_PERCENT: Final = re.compile(r"([0-9]+)%", re.ASCII)
_ALL: Final = 100


def check_node(node: Fields) -> None:
    """Taints and amounts of a Node."""
    taints = node.child("spec").children("taints")
    for each in taints:
        rules.text(each, "key", label_key)
        rules.text(each, "value", label_value, required=False)
        rules.one_of(each, "effect", NODE_EFFECTS)
    rules.unique(node.child("spec"), "taints", ((each.text("key"), each.text("effect")) for each in taints))
    for name in ("capacity", "allocatable"):
        amounts(node.child("status"), name)


def check_quota(quota: Fields) -> None:
    """Limits and scopes of a ResourceQuota."""
    spec = quota.child("spec")
    hard = amounts(spec, "hard", of_quota)
    scopes = spec.texts("scopes")
    for index, scope in enumerate(scopes):
        _scope(spec, f"scopes[{index}]", scope, hard)
    _no_conflict(spec, "scopes", scopes)
    expressions = spec.child("scopeSelector").children("matchExpressions")
    for each in expressions:
        scope, operator, values = each.text("scopeName"), each.text("operator"), each.texts("values")
        _scope(each, "scopeName", scope, hard)
        rules.one_of(each, "operator", _OPERATORS)
        if scope not in _WITH_VALUES and operator != "Exists":
            each.problem("operator", f"is Exists for {scope}")
        _count_values(each, operator, len(values))
    _no_conflict(spec.child("scopeSelector"), "matchExpressions", [each.text("scopeName") for each in expressions])


def _scope(fields: Fields, name: str, scope: str, hard: Mapping[str, object]) -> None:
    if scope not in _SCOPES:
        fields.problem(name, f"{shown(scope)} is not one of {', '.join(_SCOPES)}")
        return
    for resource in hard:
        if not is_scope_for(scope, resource):
            fields.problem(name, f"{scope} does not go with the limit {resource}")


def _no_conflict(fields: Fields, name: str, scopes: list[str] | tuple[str, ...]) -> None:
    for pair in _CONFLICTS:
        if set(pair) <= set(scopes):
            fields.problem(name, f"{' and '.join(pair)} exclude each other")


def _count_values(fields: Fields, operator: str, count: int) -> None:
    if operator in {"In", "NotIn"} and not count:
        fields.problem("values", f"is required for {operator}")
    if operator in {"Exists", "DoesNotExist"} and count:
        fields.problem("values", f"must be left out for {operator}")


def check_budget(budget: Fields) -> None:
    """Selector and numbers of a PodDisruptionBudget."""
    spec = budget.child("spec")
    label_selector(spec.child("selector"))
    names = ("minAvailable", "maxUnavailable")
    if all(spec.has(name) for name in names):
        spec.problem("maxUnavailable", "cannot stand beside minAvailable")
    for name in names:
        value = spec.data.get(name)
        percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
        if isinstance(value, str) and percent is None:
            spec.problem(name, f"{shown(value)} is not a number of pods, nor a percentage such as 50%")
        elif isinstance(value, int) and value < 0:
            spec.problem(name, f"{value} is negative")
        elif percent is not None and int(percent[1]) > _ALL:
            spec.problem(name, f"{value} is more than {_ALL}%")


def label_selector(selector: Fields) -> None:
    """A selector of labels."""
    for key, value in selector.child("matchLabels").data.items():
        rules.told(selector, f"matchLabels[{key}]", key, label_key(key))
        if isinstance(value, str):
            rules.told(selector, f"matchLabels[{key}]", value, label_value(value))
    for each in selector.children("matchExpressions"):
        rules.text(each, "key", label_key)
        rules.one_of(each, "operator", _OPERATORS)
        rules.texts(each, "values", label_value)
        _count_values(each, each.text("operator"), len(each.texts("values")))


def check_pod_group(group: Fields) -> None:
    """The policy of a PodGroup."""
    policy = group.child("spec").child("schedulingPolicy")
    if policy.has("basic") == policy.has("gang"):
        policy.problem("", "needs one of basic and gang")
    gang = policy.child("gang")
    if policy.has("gang") and gang.integer("minCount") < 1:
        gang.problem("minCount", "is not a number of pods from 1 on")
