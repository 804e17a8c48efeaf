"""The API server's rules and limits for objects of resource.k8s.io, beyond the types that parsing checks.

The rules read JSON, not values: a value has no place for most of what breaks a rule, and problems have the paths of the
object's own version. Source: pkg/apis/resource/validation, Kubernetes 1.36 and what 1.37 adds.
"""

from collections.abc import Callable, Mapping
from typing import Final

from allocator.model.json.common import GROUP, V1BETA1
from allocator.model.slices.validation import check_slice
from allocator.model.validation.amounts import is_resource_of_containers as is_resource_of_containers
from allocator.model.validation.amounts import is_whole as is_whole
from allocator.model.validation.claims import ClaimRules, check_class, check_taint_rule
from allocator.model.validation.core import check_budget, check_node, check_pod_group, check_quota
from allocator.model.validation.metadata import check_described, check_metadata
from allocator.model.validation.pods import POD_SPECS as POD_SPECS
from allocator.model.validation.pods import pod_problems as pod_problems
from allocator.model.validation.schema import schema_problems as schema_problems
from allocator.tools.fields import Fields, Problem

_OUR_GROUP: Final = "dra-extender.dev"
_OTHERS: Final[Mapping[str, Callable[[Fields], None]]] = {
    "v1 Pod": lambda _: None,
    "v1 Namespace": lambda _: None,
    "v1 Node": check_node,
    "v1 ResourceQuota": check_quota,
    "policy/v1 PodDisruptionBudget": check_budget,
    **{f"scheduling.k8s.io/{version} PodGroup": check_pod_group for version in ("v1beta1", "v1alpha3", "v1alpha2")},
}
"""The rules for kinds of other groups, by API version and kind, beyond those of their metadata."""


def validate(
    obj: Mapping[str, object], check_expression: Callable[[str], str | None] | None = None
) -> tuple[Problem, ...]:
    """What an API server would refuse in an object that parses.

    `pod_problems` has the rules for the specs of pods.

    Args:
        obj: decoded JSON with apiVersion and kind.
        check_expression: returns what is wrong with a CEL expression; None if nothing is.
    """
    top = Fields(obj, "", [])
    version, kind = top.text("apiVersion"), top.text("kind")
    others = _OTHERS.get(f"{version} {kind}")
    group = version.rpartition("/")[0]
    if group not in {GROUP, _OUR_GROUP} and others is None:
        return ()
    check_metadata(top.child("metadata"), kind)
    if group == GROUP:
        _check_devices(top, version, kind, check_expression)
    elif others is not None:
        others(top)
    return tuple(dict.fromkeys(top.problems))


def _check_devices(top: Fields, version: str, kind: str, check_expression: Callable[[str], str | None] | None) -> None:
    """The rules for kinds of resource.k8s.io."""
    spec, flat = top.child("spec"), version == V1BETA1
    match kind:
        case "ResourceSlice":
            check_slice(spec, nested=flat)
        case "DeviceClass":
            check_class(spec, check_expression)
        case "DeviceTaintRule":
            check_taint_rule(spec)
        case "ResourceClaimTemplate":
            check_described(spec.child("metadata"))
            ClaimRules(spec.child("spec"), flat=flat, check=check_expression).check_spec()
        case "ResourceClaim":
            claim = ClaimRules(spec, flat=flat, check=check_expression)
            claim.check_spec()
            claim.check_status(top.child("status"))
        case _:
            pass
