"""The API server's rules and limits for objects of resource.k8s.io, beyond the types that parsing checks.

The rules read JSON, not values: a value has no place for most of what breaks a rule, and problems have the paths of the
object's own version. Source: pkg/apis/resource/validation, Kubernetes 1.36 and what 1.37 adds.
"""

from collections.abc import Callable, Mapping
from typing import Final

from allocator.model import field_rules as rules
from allocator.model.json.common import GROUP, V1BETA1
from allocator.model.slices.validation import check_slice
from allocator.model.validation.claims import ClaimRules
from allocator.model.validation.device_classes import check_class, check_taint_rule
from allocator.model.validation.pods import POD_SPECS as POD_SPECS
from allocator.model.validation.pods import is_resource_of_containers as is_resource_of_containers
from allocator.model.validation.pods import pod_problems as pod_problems
from allocator.model.validation.schema import schema_problems as schema_problems
from allocator.tools.fields import Fields, Problem
from allocator.tools.names import dns_label, dns_subdomain

_NAMED: Final = frozenset({"v1 Pod", "v1 Node"})


def validate(
    obj: Mapping[str, object], check_expression: Callable[[str], str | None] | None = None
) -> tuple[Problem, ...]:
    """What an API server would refuse in an object that parses.

    Of objects of other groups, only the names of Pods and Nodes are checked.

    Args:
        obj: decoded JSON with apiVersion and kind.
        check_expression: returns what is wrong with a CEL expression; None if nothing is.
    """
    top = Fields(obj, "", [])
    version = top.text("apiVersion")
    if not version.startswith(f"{GROUP}/") and f"{version} {top.text('kind')}" not in _NAMED:
        return ()
    rules.text(top.child("metadata"), "name", dns_subdomain)
    rules.text(top.child("metadata"), "namespace", dns_label, required=False)
    spec, flat = top.child("spec"), version == V1BETA1
    match top.text("kind"):
        case "ResourceSlice":
            check_slice(spec, nested=flat)
        case "DeviceClass":
            check_class(spec, check_expression)
        case "DeviceTaintRule":
            check_taint_rule(spec)
        case "ResourceClaimTemplate":
            ClaimRules(spec.child("spec"), flat=flat, check=check_expression).check_spec()
        case "ResourceClaim":
            claim = ClaimRules(spec, flat=flat, check=check_expression)
            claim.check_spec()
            claim.check_status(top.child("status"))
        case _:
            pass
    return tuple(dict.fromkeys(top.problems))
