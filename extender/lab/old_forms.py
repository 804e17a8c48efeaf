"""Objects as proposals and earlier APIs write them (KEP-14, KEP-3063, KEP-3675), and what they are today.

An object is written anew with the fields of today; what has no counterpart is told. A field of another object may
decide what becomes of a field: claims name their parameters, and pods name classes.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from allocator import Problem
from allocator.model.json import CONTROLLER, PARAMETERS_REF, SUITABLE_NODES
from allocator.model.validation import POD_SPECS, is_resource_of_containers
from allocator.tools import did_you_mean, jsontext, nearest
from extender.cluster.compute_claims import CONFIG_MAP, FILE, has_parameters
from extender.cluster.objects.claims import ALLOCATION_MODE, DELAYED, IMMEDIATE
from extender.cluster.objects.resource_classes import VERSION
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, CLASSES, CONTEXTS, PODS, RESOURCE_CLASSES, TEMPLATES

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one field.

    Attributes:
        path: of the old field.
        today: what has its place; or, if the field is lost, why nothing has it, or what to do.
    """

    path: str
    today: str
    is_lost: bool = False

    @property
    def problem(self) -> Problem:
        """The problem with an object that has the field."""
        if self.is_lost:
            return Problem(self.path, f"has no counterpart: {self.today}")
        return Problem(self.path, f"is {self.today} today; dra-extender convert writes it")


class Changes:
    """Collects what becomes of the fields of one object."""

    def __init__(self) -> None:
        self.found: list[Change] = []

    def become(self, path: str, today: str) -> None:
        """A field has another place, or another name, today."""
        self.found.append(Change(path, today))

    def lose(self, path: str, why: str) -> None:
        """A field has none."""
        self.found.append(Change(path, why, is_lost=True))

    def lose_others(self, data: Mapping[str, Any], path: str, known: Collection[str]) -> None:
        """All fields that are not known are lost."""
        for name in sorted(data.keys() - set(known)):
            self.lose(f"{path}.{name}".removeprefix("."), "the old API had no such field, or it is read no more")


def mapping(value: object) -> Object:
    """A JSON object; empty if the value is none."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> list[Object]:
    """The JSON objects in a list; empty if the value is no list."""
    return [mapping(each) for each in value] if isinstance(value, list) else []


def without(data: Mapping[str, Any], names: Iterable[str]) -> Object:
    """An object without some of its fields."""
    left_out = set(names)
    return {name: value for name, value in data.items() if name not in left_out}


CLAIM_PARAMETERS: Final = "ResourceClaimParameters"
CLASS_PARAMETERS: Final = "ResourceClassParameters"

_ATTRIBUTES: Final = re.compile(r"\battributes\.(\w+)")
_PLACES: Final[Mapping[str, str]] = {
    "quantity": "capacity",
    **dict.fromkeys(("bool", "int", "string", "version"), "attributes"),
}
"""Where a device has today what an attribute of a type was."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a claim that parameters become: requests and configuration."""

    requests: Sequence[Object]
    config: Sequence[Object]


def requests_of(parameters: Mapping[str, Any], class_name: str, path: str, changes: Changes) -> Parts:
    """The requests for what the parameters of a claim ask for.

    Args:
        parameters: a ResourceClaimParameters.
        class_name: the device class of the claim.
        path: of the field that names the parameters, for problems.
        changes: told what is lost.
    """
    requests: list[Object] = []
    config: list[Object] = []
    known = ("apiVersion", "kind", "metadata", "generatedFrom", "shareable", "driverRequests")
    changes.lose_others(parameters, path, known)
    if parameters.get("shareable") is False:
        changes.lose(
            f"{path}.shareable", "any number of pods can use a claim; write a claim template for one claim each"
        )
    for number, of_driver in enumerate(mappings(parameters.get("driverRequests"))):
        at, driver = f"{path}.driverRequests[{number}]", str(of_driver.get("driverName") or "")
        changes.lose_others(of_driver, at, ("driverName", "requests", "vendorParameters"))
        names: list[str] = []
        for index, each in enumerate(mappings(of_driver.get("requests"))):
            changes.lose_others(each, f"{at}.requests[{index}]", ("namedResources", "vendorParameters"))
            name = f"request-{len(requests)}"
            names.append(name)
            selector = f"{at}.requests[{index}].namedResources.selector"
            expression = expression_of(mapping(each.get("namedResources")).get("selector"), driver, selector, changes)
            exactly = {"deviceClassName": class_name, "selectors": [{"cel": {"expression": expression}}]}
            requests.append({"name": name, "exactly": exactly})
            config += _config(driver, each.get("vendorParameters"), [name])
        config += _config(driver, of_driver.get("vendorParameters"), names)
    return Parts(requests, config)


def class_spec(driver: str, parameters: Mapping[str, Any], path: str, changes: Changes) -> Object:
    """The spec of the device class for a class whose devices the scheduler allocates.

    Args:
        driver: of the class.
        parameters: a ResourceClassParameters; empty if the class names none.
        path: of the field that names the parameters, for problems.
        changes: told what is lost.
    """
    changes.lose_others(
        parameters, path, ("apiVersion", "kind", "metadata", "generatedFrom", "filters", "vendorParameters")
    )
    filters = {
        str(each.get("driverName") or driver): expression_of(
            mapping(each.get("namedResources")).get("selector"),
            str(each.get("driverName") or driver),
            f"{path}.filters[{index}].namedResources.selector",
            changes,
        )
        for index, each in enumerate(mappings(parameters.get("filters")))
    }
    of_vendor = mappings(parameters.get("vendorParameters"))
    drivers = dict.fromkeys((driver, *filters, *(str(each.get("driverName") or driver) for each in of_vendor)))
    ways = [filters.get(each) or of_driver(each) for each in drivers]
    expression = ways[0] if len(ways) == 1 else " || ".join(f"({each})" for each in ways)
    config = [
        part for each in of_vendor for part in _config(str(each.get("driverName") or driver), each.get("parameters"))
    ]
    spec: Object = {"selectors": [{"cel": {"expression": expression}}]}
    return {**spec, "config": config} if config else spec


def expression_of(selector: object, driver: str, path: str, changes: Changes) -> str:
    """A selector of named resources as an expression over a device of a driver."""
    if not isinstance(selector, str) or selector.strip() in {"", "true"}:
        return of_driver(driver)
    for type_ in sorted({each for each in _ATTRIBUTES.findall(selector) if each not in _PLACES}):
        changes.lose(path, f"attributes.{type_}: write the condition with attributes that devices have today")
    quoted = jsontext.dumps(driver)

    def place(found: re.Match[str]) -> str:
        return f"device.{_PLACES.get(found[1], 'attributes')}[{quoted}]"

    return f"{of_driver(driver)} && ({_ATTRIBUTES.sub(place, selector)})"


def of_driver(driver: str) -> str:
    """The expression that selects all devices of a driver."""
    return f"device.driver == {jsontext.dumps(driver)}"


def _config(driver: str, parameters: object, requests: Iterable[str] = ()) -> Iterator[Object]:
    if parameters is not None:
        opaque = {"opaque": {"driver": driver, "parameters": parameters}}
        names = list(requests)
        yield {"requests": names, **opaque} if names else opaque


_SELECTOR: Final = "resourceSelector"
_NAMES: Final = (_SELECTOR, "labelSelector", "resourceSelectorRequirements")
"""The names of the field in the examples of the text."""


def from_text_form(obj: Mapping[str, object]) -> dict[str, object]:
    """A class or a ConfigMap as an object of its kind; any other object as it is.

    As the texts of KEP-14 and KEP-3675 have them: the class has no ``apiVersion``; the ConfigMap has its file beside
    ``data``, not in it.
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


_PARAMETERS: Final = frozenset({CLAIM_PARAMETERS, CLASS_PARAMETERS})
_GROUPS: Final = frozenset({"core.k8s.io", "resource.k8s.io"})
_DEVICES_VERSION: Final = "resource.k8s.io/v1alpha3"
"""The last version with controllers; its requests are those of v1beta1."""
_OLD_VERSIONS: Final = frozenset({"v1alpha1", "v1alpha2", "v1alpha3"})
_TOP: Final = ("apiVersion", "kind", "metadata")
_CONTROLLER_FIELDS: Final = ("controllerName", "controller")
"""As KEP-3063 has it, and as Kubernetes 1.31 did."""
_CLAIM_FIELDS: Final = ("resourceClassName", "parametersRef", "allocationMode", *_CONTROLLER_FIELDS)
_STATUS: Final[Mapping[str, str]] = {
    "driverName": "the annotation of the device class names the controller",
    "allocation": "the claim is allocated again",
    "reservedFor": "the claim is reserved again",
    "deallocationRequested": "dra-extender asks for it by an annotation, once the claim is allocated",
}
_DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class Rewritten:
    """An object that is written anew.

    Attributes:
        before: the object as it was.
        made: the object of today; None: another one has it, as the changes say.
        changes: what became of each old field.
    """

    before: Mapping[str, Any]
    made: Mapping[str, Any] | None
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class _Others:
    """The facts that other objects tell.

    Attributes:
        are_known: False: only one object is looked at.
        named: all of them, by kind and key.
        resources: the extended resource of each ResourceClass (KEP-14).
        controllers: the controllers that claims name, by device class.
        read: the identities of the structured parameters that have become parts of other objects.
    """

    are_known: bool = False
    named: Mapping[tuple[str, ObjectKey], Mapping[str, Any]] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    controllers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    read: set[int] = field(default_factory=set)

    def find(self, kind: str, ref: Mapping[str, Any], namespace: str) -> Mapping[str, Any] | None:
        """The structured parameters that a reference names, or that a driver has made of what it names."""
        key = ObjectKey(namespace, str(ref.get("name")))
        if ref.get("kind") == kind:
            return self.named.get((kind, key))
        names = ("apiGroup", "kind", "name")
        for (other, place), each in self.named.items():
            made_of = mapping(each.get("generatedFrom"))
            is_of = all((made_of.get(name) or "") == (ref.get(name) or "") for name in names)
            if other == kind and place.namespace == namespace and made_of and is_of:
                return each
        return None


_Writer: TypeAlias = Callable[[Mapping[str, Any], Changes, _Others], Object | None]


def changes_of(obj: Mapping[str, Any]) -> tuple[Change, ...]:
    """The old fields of an object; none if it is an object of today."""
    changes, write = Changes(), _writer_of(obj)
    if write is not None:
        write(obj, changes, _Others())
    return tuple(changes.found)


def rewritten(
    objects: Sequence[Mapping[str, Any]], there: Sequence[Mapping[str, Any]], resources: Mapping[str, str]
) -> Iterator[Rewritten]:
    """Objects with old fields, written anew; objects of today are left out, unless claims name their controller.

    Args:
        objects: those that may have old fields.
        there: objects of today.
        resources: the extended resource of each ResourceClass of today.
    """
    every = [*objects, *there]
    named = {(str(each.get("kind")), _key(each)): each for each in every}
    others = _Others(are_known=True, named=named, resources=resources, controllers=_controllers(objects))
    for each in sorted(objects, key=lambda one: one.get("kind") in _PARAMETERS):  # after those that name them
        changes, write = Changes(), _writer_of(each)
        made = None if write is None else write(each, changes, others)
        if changes.found:
            yield Rewritten(each, made, tuple(changes.found))
    for each in there:
        names = others.controllers.get(_name(each), frozenset())
        if each.get("kind") == CLASSES.kind and len(names) == 1 and CONTROLLER not in _annotations(each):
            made = _annotated(each, {CONTROLLER: min(names)})
            told = Change(f"metadata.annotations[{CONTROLLER}]", f"{min(names)}, which claims name")
            yield Rewritten(each, made, (told,))


def _writer_of(obj: Mapping[str, Any]) -> _Writer | None:
    version, kind = obj.get("apiVersion"), str(obj.get("kind"))
    if kind == PODS.kind and version is None:
        return partial(_workload, "spec")
    if f"{version} {kind}" in POD_SPECS:
        return partial(_workload, POD_SPECS[f"{version} {kind}"])
    if kind == RESOURCE_CLASSES.kind and version is None and "driverName" in obj:
        return _resource_class
    return _WRITERS.get(kind) if str(version).rpartition("/")[0] in _GROUPS else None


def _controllers(objects: Iterable[Mapping[str, Any]]) -> Mapping[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for each in objects:
        spec = mapping(each.get("spec"))
        spec = mapping(spec.get("spec")) if each.get("kind") == TEMPLATES.kind else spec
        for name in _CONTROLLER_FIELDS:
            for class_name in _class_names(spec) if spec.get(name) else ():
                found[class_name] = found.get(class_name, frozenset()) | {str(spec[name])}
    return found


def _class_names(spec: Mapping[str, Any]) -> Iterator[str]:
    """The device classes of a claim, in any version."""
    for request in mappings(mapping(spec.get("devices")).get("requests")):
        for each in (request, mapping(request.get("exactly")), *mappings(request.get("firstAvailable"))):
            if isinstance(each.get("deviceClassName"), str):
                yield each["deviceClassName"]


# --- classes ------------------------------------------------------------------------------------------------


def _resource_class(obj: Mapping[str, Any], changes: Changes, others: _Others) -> Object:
    driver, ref = str(obj.get("driverName") or ""), mapping(obj.get("parametersRef"))
    known = (*_TOP, "driverName", "parametersRef", "suitableNodes", "structuredParameters")
    changes.become("kind", f"{CLASSES.kind} of {CLASSES.api_versions()[0]}")
    changes.lose_others(obj, "", known)
    made: Object = {"apiVersion": CLASSES.api_versions()[0], "kind": CLASSES.kind, "metadata": _metadata(obj)}
    if obj.get("structuredParameters") is True:
        return _structured_class(obj, {**made, "spec": {}}, changes, others)
    changes.become("driverName", f"metadata.annotations[{CONTROLLER}]")
    annotations = {CONTROLLER: driver}
    if ref:
        changes.become("parametersRef", f"metadata.annotations[{PARAMETERS_REF}]")
        annotations[PARAMETERS_REF] = jsontext.dumps(ref)
    if obj.get("suitableNodes"):
        changes.become("suitableNodes", f"metadata.annotations[{SUITABLE_NODES}]")
        annotations[SUITABLE_NODES] = jsontext.dumps(obj["suitableNodes"])
    return _annotated({**made, "spec": {}}, annotations)


def _structured_class(obj: Mapping[str, Any], made: Object, changes: Changes, others: _Others) -> Object:
    driver, ref = str(obj.get("driverName") or ""), mapping(obj.get("parametersRef"))
    changes.become("driverName", "spec.selectors")
    changes.become("structuredParameters", "what every device class has")
    if obj.get("suitableNodes"):
        changes.lose("suitableNodes", "devices say on which nodes they are; give the pods a node selector otherwise")
    namespace = str(ref.get("namespace") or _DEFAULT_NAMESPACE)
    parameters = others.find(CLASS_PARAMETERS, ref, namespace) if ref else {}
    if ref and others.are_known and parameters is None:
        changes.lose(
            "parametersRef", f"{_reference_in_words(ref)} is not among the files, nor are {CLASS_PARAMETERS} made of it"
        )
    elif ref:
        changes.become("parametersRef", "spec.selectors and spec.config")
    others.read.add(id(parameters))
    return {**made, "spec": class_spec(driver, parameters or {}, _place("parametersRef", parameters), changes)}


def _device_class(obj: Mapping[str, Any], changes: Changes, others: _Others) -> Object:
    spec, version = mapping(obj.get("spec")), _version(obj, changes)
    made = {**obj, "apiVersion": version, "spec": without(spec, ("suitableNodes",))}
    names = others.controllers.get(_name(obj), frozenset())
    annotations = {CONTROLLER: min(names)} if len(names) == 1 and CONTROLLER not in _annotations(obj) else {}
    if "suitableNodes" in spec:
        changes.become("spec.suitableNodes", f"metadata.annotations[{SUITABLE_NODES}]")
        annotations[SUITABLE_NODES] = jsontext.dumps(spec["suitableNodes"])
    return _annotated(made, annotations)


def _parameters(obj: Mapping[str, Any], changes: Changes, others: _Others) -> None:
    """Structured parameters stand in the claims and classes that name them."""
    place = "claims" if obj.get("kind") == CLAIM_PARAMETERS else "classes"
    if others.are_known and id(obj) not in others.read:
        changes.lose("kind", f"it becomes a part of the {place} that name it, and none among the files does")
    else:
        changes.become("kind", f"a part of the {place} that name it")


def _scheduling_context(obj: Mapping[str, Any], changes: Changes, _: _Others) -> Object:
    version = CONTEXTS.api_versions()[0]
    changes.become("apiVersion", version)
    if obj.get("kind") != CONTEXTS.kind:
        changes.become("kind", CONTEXTS.kind)
    changes.lose_others(obj, "", (*_TOP, "spec", "status"))
    return {**obj, "apiVersion": version, "kind": CONTEXTS.kind}


# --- claims -------------------------------------------------------------------------------------------------


def _claim(obj: Mapping[str, Any], changes: Changes, others: _Others) -> Object:
    version = _version(obj, changes)
    spec, annotations = _claim_spec(mapping(obj.get("spec")), "spec", _key(obj), changes, others)
    made = {**obj, "apiVersion": version, "spec": spec}
    status = {name: value for name, value in mapping(obj.get("status")).items() if value}
    lost = status.keys() & (_STATUS if _is_of_old_api(obj) else {"deallocationRequested"})
    for name in sorted(lost):
        changes.lose(f"status.{name}", _STATUS[name])
    allocation = mapping(status.get("allocation"))
    for name in sorted(allocation.keys() & set(_CONTROLLER_FIELDS) - lost):
        changes.lose(f"status.allocation.{name}", "the annotation of the device class names the controller")
    if "allocation" in status and "allocation" not in lost:
        status = {**status, "allocation": without(allocation, _CONTROLLER_FIELDS)}
    kept = {name: value for name, value in status.items() if name not in lost}
    made = {**made, "status": kept} if kept else without(made, ("status",))
    return _annotated(made, annotations)


def _template(obj: Mapping[str, Any], changes: Changes, others: _Others) -> Object:
    version, outer = _version(obj, changes), mapping(obj.get("spec"))
    spec, annotations = _claim_spec(mapping(outer.get("spec")), "spec.spec", _key(obj), changes, others)
    inner = without(outer, ("metadata",)) if outer.get("metadata") is None else outer
    return {**obj, "apiVersion": version, "spec": _annotated({**inner, "spec": spec}, annotations)}


def _claim_spec(
    spec: Object, path: str, key: ObjectKey, changes: Changes, others: _Others
) -> tuple[Object, dict[str, str]]:
    """The spec of a claim, and the annotations of the claim."""
    made, annotations = without(spec, _CLAIM_FIELDS), dict[str, str]()
    mode = spec.get("allocationMode")
    if mode in {IMMEDIATE, DELAYED}:
        changes.become(f"{path}.allocationMode", f"the annotation {ALLOCATION_MODE} of the claim")
        annotations[ALLOCATION_MODE] = mode
    elif "allocationMode" in spec:
        changes.lose(f"{path}.allocationMode", f"there are {IMMEDIATE} and {DELAYED}")
    for name in _CONTROLLER_FIELDS:
        if name in spec:
            _controller(str(spec[name]), list(_class_names(spec)), f"{path}.{name}", changes, others)
    class_name = str(spec.get("resourceClassName") or "")
    if class_name and "devices" in spec:
        changes.lose(f"{path}.resourceClassName", "the claim has requests for devices already")
    elif class_name:
        changes.become(f"{path}.resourceClassName", f"{path}.devices.requests[].exactly.deviceClassName")
        made["devices"] = {"requests": [{"name": "request-0", "exactly": {"deviceClassName": class_name}}]}
    ref = mapping(spec.get("parametersRef"))
    if ref:
        devices, reference = _parametrized(ref, class_name, f"{path}.parametersRef", key, changes, others)
        annotations |= reference
        made["devices"] = devices or made.get("devices", {})
    return made, annotations


def _parametrized(
    ref: Object, class_name: str, path: str, key: ObjectKey, changes: Changes, others: _Others
) -> tuple[Object, dict[str, str]]:
    """The devices that parameters ask for, if they are known; and the annotation that names them, if they are not."""
    structured = others.find(CLAIM_PARAMETERS, ref, key.namespace)
    if structured is not None:
        changes.become(path, "the requests of the claim")
        others.read.add(id(structured))
        parts = requests_of(structured, class_name, _place(path, structured), changes)
        return {"requests": list(parts.requests), **({"config": list(parts.config)} if parts.config else {})}, {}
    is_config_map = ref.get("kind") == CONFIG_MAP and not ref.get("apiGroup")
    computing = others.named.get((TEMPLATES.kind, ObjectKey(key.namespace, str(ref.get("name")))))
    if is_config_map and computing is not None and has_parameters(computing):
        changes.become(path, "the requests for the cores, and the configuration of the claim")
        return dict(computing["spec"]["spec"]["devices"]), {}
    if others.are_known and (is_config_map or ref.get("kind") == CLAIM_PARAMETERS):
        kind = str(ref["kind"])
        if (kind, ObjectKey(key.namespace, str(ref.get("name")))) not in others.named:
            kinds = (kind, TEMPLATES.kind) if is_config_map else (kind,)
            near = nearest(str(ref.get("name")), [other.name for of, other in others.named if of in kinds])
            changes.lose(path, f"{_reference_in_words(ref)} is not among the files{did_you_mean(near)}")
            return {}, {}
    annotation = f"the annotation {PARAMETERS_REF} of the claim"
    changes.become(
        path,
        f"the requests for the cores of {_reference_in_words(ref)}, or {annotation}" if is_config_map else annotation,
    )
    return {}, {PARAMETERS_REF: jsontext.dumps(ref)}


def _controller(name: str, classes: Sequence[str], path: str, changes: Changes, others: _Others) -> None:
    """A claim names no controller itself: its device classes do."""
    annotation = f"{CONTROLLER}: {name}"
    for each in dict.fromkeys(classes):
        is_there = (CLASSES.kind, ObjectKey(_DEFAULT_NAMESPACE, each)) in others.named
        if others.are_known and (not is_there or others.controllers.get(each) != frozenset({name})):
            changes.lose(path, f"annotate a device class of the claim such as {each} with {annotation}")
        else:
            changes.become(path, f"the annotation {annotation} of DeviceClass {each}")
    if not classes:
        changes.lose(path, "the claim has no device class")


# --- pods ---------------------------------------------------------------------------------------------------


def _workload(place: str, obj: Mapping[str, Any], changes: Changes, others: _Others) -> Object:
    made = dict(obj)
    if obj.get("apiVersion") is None and others.are_known:
        changes.become("apiVersion", PODS.api_versions()[0])
        made = {"apiVersion": PODS.api_versions()[0], **made}
    return _within(made, place.split("."), lambda spec: _pod_spec(spec, place, changes, others))


def _within(obj: Object, place: Sequence[str], change: Callable[[Object], Object]) -> Object:
    """The object, with what stands at a place changed, if it is an object."""
    if not place:
        return change(obj)
    inner = obj.get(place[0])
    return {**obj, place[0]: _within(inner, place[1:], change)} if isinstance(inner, dict) else obj


def _pod_spec(spec: Object, path: str, changes: Changes, others: _Others) -> Object:
    made = dict(spec)
    claims = spec.get("resourceClaims")
    if isinstance(claims, list):
        made["resourceClaims"] = [
            _pod_claim(each, f"{path}.resourceClaims[{index}]", changes) for index, each in enumerate(claims)
        ]
    for kind in ("initContainers", "containers"):
        if isinstance(spec.get(kind), list):
            made[kind] = [
                _container(each, f"{path}.{kind}[{index}]", changes, others) for index, each in enumerate(spec[kind])
            ]
    return made


def _pod_claim(claim: object, path: str, changes: Changes) -> object:
    if not isinstance(claim, dict):
        return claim
    for name in ("source", "template"):
        inner = claim.get(name)
        if isinstance(inner, dict):
            for each in inner:
                changes.become(f"{path}.{name}.{each}", f"{path}.{each}")
            claim = {**without(claim, (name,)), **inner}
    return claim


def _container(container: object, path: str, changes: Changes, others: _Others) -> object:
    resources = mapping(mapping(container).get("resources"))
    made = dict(resources)
    claims = resources.get("claims")
    for index, each in enumerate(claims if isinstance(claims, list) else ()):
        if isinstance(each, str):
            changes.become(f"{path}.resources.claims[{index}]", f"an object with a name: {{name: {each}}}")
            made["claims"] = [{"name": one} if isinstance(one, str) else one for one in claims or ()]
    for kind in ("limits", "requests"):
        amounts = mapping(resources.get(kind))
        for name in amounts:
            today = others.resources.get(name)
            if today is not None and not is_resource_of_containers(name):
                changes.become(f"{path}.resources.{kind}[{name}]", today)
                made[kind] = {today if key == name else key: value for key, value in made[kind].items()}
    return {**mapping(container), "resources": made} if made != resources else container


# --- parts of objects ---------------------------------------------------------------------------------------


def _is_of_old_api(obj: Mapping[str, Any]) -> bool:
    group, _, version = str(obj.get("apiVersion")).rpartition("/")
    return group == "core.k8s.io" or version in _OLD_VERSIONS


def _version(obj: Mapping[str, Any], changes: Changes) -> str:
    """The version of today with the same fields for devices."""
    version = str(obj.get("apiVersion"))
    if not _is_of_old_api(obj):
        return version
    today = "resource.k8s.io/v1beta1" if version == _DEVICES_VERSION else CLAIMS.api_versions()[0]
    changes.become("apiVersion", today)
    return today


def _metadata(obj: Mapping[str, Any]) -> Object:
    return mapping(obj.get("metadata"))


def _name(obj: Mapping[str, Any]) -> str:
    return str(_metadata(obj).get("name") or "")


def _key(obj: Mapping[str, Any]) -> ObjectKey:
    return ObjectKey(str(_metadata(obj).get("namespace") or _DEFAULT_NAMESPACE), _name(obj))


def _annotations(obj: Mapping[str, Any]) -> Object:
    return mapping(_metadata(obj).get("annotations"))


def _annotated(obj: Mapping[str, Any], annotations: Mapping[str, str]) -> Object:
    if not annotations:
        return dict(obj)
    return {**obj, "metadata": {**_metadata(obj), "annotations": {**_annotations(obj), **annotations}}}


def _place(path: str, parameters: Mapping[str, Any] | None) -> str:
    """The path of a field, with the object that it names."""
    return (
        f"{path} ({_reference_in_words({'kind': parameters.get('kind'), 'name': _name(parameters)})})"
        if parameters
        else path
    )


def _reference_in_words(ref: Mapping[str, Any]) -> str:
    return f"{ref.get('kind')} {ref.get('name')}"


_WRITERS: Final[Mapping[str, _Writer]] = {
    RESOURCE_CLASSES.kind: _resource_class,
    CLASSES.kind: _device_class,
    CLAIMS.kind: _claim,
    TEMPLATES.kind: _template,
    CONTEXTS.kind: _scheduling_context,
    "PodScheduling": _scheduling_context,
    CLAIM_PARAMETERS: _parameters,
    CLASS_PARAMETERS: _parameters,
}
"""By kind, in the groups that had it."""
