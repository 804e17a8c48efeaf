"""Requests of a question: written as flat fields, and judged by the rules for ResourceClaims."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from allocator import (
    AllocationMode,
    ClaimSpec,
    DeviceRequest,
    InvalidObjectError,
    Problem,
    parse_claim,
    schema_problems,
    validate,
)
from allocator.tools import Fields
from extender.kube.claim_rules import check_expression

_FIELDS: Final = {
    "deviceClassName": "device_class",
    "count": "count",
    "allocationMode": "mode",
    "selectors": "selectors",
    "capacity": "capacity",
}
"""Values of a request to the fields of `DeviceRequest`. They have the names and rules of a ResourceClaim."""

VALUES: Final = frozenset(_FIELDS)

_UNNAMED: Final = "request"
_ANY_CLASS: Final = "any"
_INNER: Final = re.compile(r"spec\.devices\.requests\[(\d+)\]\.?(?:exactly\.?)?")
_SHORTER: Final = ((".cel.expression", ""), (".cel", ""), ("capacity.requests", "capacity"))
_WHOLE: Final = "spec.devices.requests"


def read_spec(requests: Sequence[Fields], path: str) -> ClaimSpec:
    """The spec of a claim with these requests; problems are noted in their fields.

    Args:
        requests: each with a name.
        path: of the list of them.
    """
    return _judged([(each.data.get("name"), each) for each in requests], path)


def read_values(fields: Fields) -> Mapping[str, object]:
    """The new values of an edit, by the names of `DeviceRequest`; problems are noted in the fields."""
    given = {**fields.data} if fields.has("deviceClassName") else {**fields.data, "deviceClassName": _ANY_CLASS}
    spec = _judged([(_UNNAMED, Fields(given, fields.path, fields.problems))], "")
    alternatives = [each for request in spec.requests for each in request.alternatives]
    if not alternatives:
        return {}
    (new,) = alternatives
    found = {field: getattr(new, field) for name, field in _FIELDS.items() if fields.has(name)}
    return found | ({"mode": AllocationMode.EXACT_COUNT} if "count" in found and "mode" not in found else {})


def written(request: DeviceRequest) -> Mapping[str, object]:
    """The values of a request as a question has them."""
    is_all = request.mode is AllocationMode.ALL
    return {
        "deviceClassName": request.device_class,
        **({"allocationMode": AllocationMode.ALL.value} if is_all else {"count": request.count}),
        "selectors": list(request.selectors),
        "capacity": {name: str(amount) for name, amount in request.capacity or ()},
    }


def _judged(requests: Sequence[tuple[object, Fields]], path: str) -> ClaimSpec:
    claim: dict[str, object] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "claim", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": name, "exactly": _exactly(each)} for name, each in requests]}},
    }
    try:
        found: Sequence[Problem] = ()
        spec = parse_claim(claim).spec
    except InvalidObjectError as error:
        found, spec = error.problems, ClaimSpec()
    known = {each.path: each for each in (*found, *schema_problems(claim))}
    for each in validate(claim, check_expression):
        known.setdefault(each.path, each)
    for problem in known.values():
        inner = _INNER.match(problem.path)
        place = requests[int(inner[1])][1].path if inner else path
        rest = problem.path[inner.end() :] if inner else problem.path.removeprefix(_WHOLE)
        for long, short in _SHORTER:
            rest = rest.replace(long, short)
        of = requests[0][1] if requests else None
        if of is not None:
            of.problems.append(Problem(".".join(filter(None, (place, rest))), problem.message))
    return spec


def _exactly(fields: Fields) -> dict[str, Any]:
    """A request as a ResourceClaim has it. A value of a wrong type stays what it is, so that it is told."""
    if fields.data.get("count") == 0:  # an API server takes this as 1
        fields.problem("count", "0 is not 1 or more")
    found = {name: fields.data[name] for name in _FIELDS if fields.has(name)}
    selectors = found.get("selectors")
    if isinstance(selectors, list):
        found["selectors"] = [{"cel": {"expression": each}} for each in selectors]
    if "capacity" in found:
        found["capacity"] = {"requests": found["capacity"]}
    return found
