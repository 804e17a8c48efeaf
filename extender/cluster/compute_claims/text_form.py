"""Objects with the parameters of a compute claim (KEP-3675), as claims of Kubernetes.

The parameters are in a ConfigMap, as in the text, or in the opaque configuration of a claim or a claim template. The
claim that is made of them has both: requests for its cores, and the parameters, which its driver gets.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from allocator import MAX_CONSTRAINTS, MAX_RESULTS, OPTIONAL_REQUESTS, InvalidObjectError, Problem
from allocator.tools import Fields, shown
from extender.cluster.compute_claims.parameters import CORES, CoreGroup, Need, read_parameters
from extender.cluster.compute_claims.requests import CLASS, ClaimParts, parts_of
from extender.kube.encoding import loads
from extender.kube.resources import CLAIMS, TEMPLATES

_FILE: Final = "config.json"
_CONFIG_MAP: Final = "ConfigMap"

Object = dict[str, Any]


def has_parameters(obj: Mapping[str, object]) -> bool:
    """Whether an object is a claim or a claim template with the parameters of a compute claim."""
    spec = _claim_spec(obj)
    return spec is not None and any(_is_ours(each) for each in _configs(spec))


def with_cores(obj: Mapping[str, object]) -> Mapping[str, object]:
    """The object with the requests for its cores: a ConfigMap becomes a claim template. Any other object as it is.

    Raises:
        InvalidObjectError: all that is wrong with the parameters.
    """
    if obj.get("kind") == _CONFIG_MAP and obj.get("apiVersion") == "v1":
        template = _template(obj)
        return obj if template is None else _expanded(template, template["spec"]["spec"], 0, obj)
    spec = _claim_spec(obj)
    if spec is None:
        return obj
    waiting = [number for number, each in enumerate(_configs(spec)) if _is_ours(each) and not each.get("requests")]
    if not waiting:
        return obj
    if len(waiting) > 1:
        problem = Problem(f"{_path(obj)}.devices.config[{waiting[1]}]", "parameters of a compute claim are there twice")
        raise InvalidObjectError(str(obj["kind"]), _name(obj), (problem,))
    return _expanded(obj, spec, waiting[0], obj)


def _expanded(obj: Mapping[str, object], spec: Object, number: int, written: Mapping[str, object]) -> Object:
    """A claim or a claim template with the requests for its cores.

    Args:
        obj: the claim or the template.
        spec: of the claim.
        number: of the configuration with the parameters.
        written: the object that somebody has written; problems are those of its fields.
    """
    devices = spec["devices"]
    configs = [dict(each) for each in _configs(spec)]
    problems: list[Problem] = []
    is_text = written.get("kind") == _CONFIG_MAP
    place = f"data[{_FILE}]" if is_text else f"{_path(obj)}.devices.config[{number}].opaque.parameters"
    groups = read_parameters(Fields(configs[number]["opaque"]["parameters"], place, problems))
    others = devices.get("requests") or []
    for index, each in enumerate(others):
        problem = _unusable(each, groups)
        if problem:
            problems.append(Problem(f"{_path(obj)}.devices.requests[{index}]", problem))
    if all(each.is_shared for each in groups) and not problems:
        problems.append(Problem(f"{place}.{CORES}", "all cores are SHARED: a container gets them without a claim"))
    constraints = devices.get("constraints") or []
    parts = ClaimParts() if problems else parts_of(groups, others, MAX_CONSTRAINTS - len(constraints))
    problems += (Problem(f"{place}.{CORES}", each) for each in _excess(parts, others, constraints))
    if problems:
        raise InvalidObjectError(str(written["kind"]), _name(written), tuple(problems))
    configs[number] = {"requests": [each["name"] for each in parts.requests], **configs[number]}
    made: Object = {
        **devices,
        "requests": [*(parts.instead.get(each["name"], each) for each in others), *parts.requests],
        "config": configs,
    }
    if constraints or parts.constraints:
        made["constraints"] = [*constraints, *parts.constraints]
    return _with_spec(obj, {**spec, "devices": made}, ",".join(parts.optional))


def _excess(parts: ClaimParts, requests: Sequence[Object], constraints: Sequence[Object]) -> Iterator[str]:
    """What is more than a claim can hold, beside the requests and constraints that it has."""
    for kind, added, own, most in (
        ("devices", sum(map(_most, parts.requests)), sum(map(_most, requests)), MAX_RESULTS),
        ("constraints", len(parts.constraints), len(constraints), MAX_CONSTRAINTS),
    ):
        if added + own > most:
            yield f"become {added} {kind}, a claim can hold {most}" + (f" and has {own}" if own else "")


def _most(request: Object) -> int:
    """The most devices of a request, as far as it says a number."""
    ways = request.get("firstAvailable") or [request.get("exactly")]
    counts = [each.get("count") for each in ways if isinstance(each, dict)]
    return max((each if isinstance(each, int) else 1 for each in counts), default=1)


def _unusable(request: object, groups: Sequence[CoreGroup]) -> str:
    """Why cores cannot be near the devices of a request; empty if they can."""
    if not isinstance(request, dict) or not isinstance(request.get("name"), str):
        return "needs a name"
    if request["name"].startswith("cores-"):
        return "names that begin with cores- are those of requests for cores"
    if any(each.with_devices is Need.PREFERRED for each in groups) and not isinstance(request.get("exactly"), dict):
        return "needs the field exactly: the NUMA node of its devices is preferred"
    return ""


def _template(config_map: Mapping[str, object]) -> Object | None:
    """The claim template for a ConfigMap of the text; None if the ConfigMap has no parameters of a compute claim."""
    data = config_map.get("data")
    text = data.get(_FILE) if isinstance(data, dict) else None
    if not isinstance(text, str) or f'"{CORES}"' not in text:
        return None
    try:
        parameters = loads(text.encode(errors="surrogatepass"))
    except ValueError as error:
        problem = Problem(f"data[{_FILE}]", f"is not JSON: {error}")
        raise InvalidObjectError(_CONFIG_MAP, _name(config_map), (problem,)) from error
    if not isinstance(parameters, dict):
        problem = Problem(f"data[{_FILE}]", f"expected an object, not {shown(parameters)}")
        raise InvalidObjectError(_CONFIG_MAP, _name(config_map), (problem,))
    metadata = config_map.get("metadata")
    config = [{"opaque": {"driver": CLASS, "parameters": parameters}}]
    return {
        "apiVersion": TEMPLATES.api_versions()[0],
        "kind": TEMPLATES.kind,
        "metadata": metadata if isinstance(metadata, dict) else {},
        "spec": {"spec": {"devices": {"config": config}}},
    }


def _claim_spec(obj: Mapping[str, object]) -> Object | None:
    spec = obj.get("spec")
    if obj.get("kind") == TEMPLATES.kind and isinstance(spec, dict):
        spec = spec.get("spec")
    elif obj.get("kind") != CLAIMS.kind:
        return None
    return spec if isinstance(spec, dict) and isinstance(spec.get("devices"), dict) else None


def _configs(spec: Object) -> list[Object]:
    configs = spec["devices"].get("config")
    is_read = isinstance(configs, list) and all(isinstance(each, dict) for each in configs)
    return configs if is_read else []


def _is_ours(config: Object) -> bool:
    opaque = config.get("opaque")
    parameters = opaque.get("parameters") if isinstance(opaque, dict) and opaque.get("driver") == CLASS else None
    return isinstance(parameters, dict) and CORES in parameters


def _path(obj: Mapping[str, object]) -> str:
    return "spec.spec" if obj.get("kind") == TEMPLATES.kind else "spec"


def _name(obj: Mapping[str, object]) -> str:
    metadata = obj.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _with_spec(obj: Mapping[str, object], spec: Object, optional: str) -> Object:
    """The object with another spec of its claim, and with the annotation for optional requests of the claim."""
    if obj["kind"] == CLAIMS.kind:
        return _annotated({**obj, "spec": spec}, optional)
    outer = obj["spec"]
    inner = outer if isinstance(outer, dict) else {}
    return {**obj, "spec": {**_annotated(inner, optional), "spec": spec}}


def _annotated(obj: Object, optional: str) -> Object:
    if not optional:
        return obj
    metadata = obj.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    names = ",".join(filter(None, (annotations.get(OPTIONAL_REQUESTS), optional)))
    return {**obj, "metadata": {**metadata, "annotations": {**annotations, OPTIONAL_REQUESTS: names}}}
