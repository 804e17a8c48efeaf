"""Claims to cores (KEP-3675) as claims to CPU devices, with the attributes of dra-driver-cpu.

The parameters of a compute claim are groups of cores, as the text writes them. They are in a ConfigMap, as in the text,
or in the opaque configuration of a claim or a claim template. The claim that is made of them has both: requests and
constraints for its cores, and the parameters, which its driver gets.

What a group prefers is the first of several alternatives, so it orders the solutions and refuses none. Siblings are the
CPUs of one core of one socket.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import product
from typing import Any, Final, NamedTuple, TypeVar

from allocator import MAX_CONSTRAINTS, MAX_RESULTS, ClaimSpec, InvalidObjectError, Problem
from allocator.model.optional import OPTIONAL_REQUESTS
from allocator.tools import Fields, dns_subdomain, hint, shown
from extender.kube.encoding import loads
from extender.kube.resources import CLAIMS, TEMPLATES

_T = TypeVar("_T")

CORES: Final = "cores"
_DEVICE, _MEMORY, _CPU = "device attributes", "mem attributes", "cpu attributes"
DRIVER: Final = "cci driver"
"""Not of the text: the driver that chooses among the CPUs of the claim, for each of its containers."""

_LISTS: Final = (_DEVICE, _MEMORY, _CPU)
_KEYS: Final = (CORES, *_LISTS, DRIVER)
_RANGE: Final = re.compile(r"(?P<least>[1-9][0-9]{0,3})(?:-(?P<most>[1-9][0-9]{0,3}))?", re.ASCII)
_EXCLUSIVE, _SHARED = "EXCLUSIVE", "SHARED"
_THREADS: Final = 2
_CORE_CPU: Final = 1000
"""Thousandths."""


class Need(Enum):
    """The strength of a group's need."""

    NONE = "none"
    PREFERRED = "preferred"
    REQUIRED = "required"


class Siblings(Enum):
    """The rule of a group for the CPUs of one core."""

    ANY = ""
    PREFERRED = "CORE-SIBLING-PREFERRED"
    REQUIRED = "CORE-SIBLING-REQUIRED"
    DENIED = "CORE-SIBLING-DENIED"


_OF_DEVICES: Final[Mapping[str, Need]] = {
    "NO-DEVICE-AFFINITY": Need.NONE,
    "NUMA-DEVICE-AFFINITY-PREFERRED": Need.PREFERRED,
    "NUMA-DEVICE-AFFINITY-REQUIRED": Need.REQUIRED,
}
_OF_MEMORY: Final[Mapping[str, tuple[Need, Need]]] = {
    "NO-MEM-AFFINITY": (Need.NONE, Need.NONE),
    "NUMA-MEM-AFFINITY-BIND-PREFERRED": (Need.PREFERRED, Need.NONE),
    "NUMA-MEM-AFFINITY-BIND-REQUIRED": (Need.REQUIRED, Need.NONE),
    "NUMA-MEM-AFFINITY-INTERLEAVE-PREFERRED": (Need.NONE, Need.PREFERRED),
    "NUMA-MEM-AFFINITY-INTERLEAVE-REQUIRED": (Need.NONE, Need.REQUIRED),
}
"""By attribute: one NUMA node for all cores, and cores of several NUMA nodes."""

_OF_CPUS: Final = (_EXCLUSIVE, _SHARED, *(each.value for each in Siblings if each.value))


@dataclass(frozen=True, slots=True)
class CoreGroup:
    """Some cores of a compute claim. A core of the proposal is a logical CPU.

    Attributes:
        least, most: how many; more than the least are taken where they are free.
        is_shared: they are the CPUs that nobody has for itself. Then nothing else is said of them.
        bind: all of them belong to one NUMA node.
        interleave: they are spread over NUMA nodes.
        with_devices: they belong to the NUMA node of the devices of the claim.
    """

    least: int
    most: int
    is_shared: bool = True
    siblings: Siblings = Siblings.ANY
    bind: Need = Need.NONE
    interleave: Need = Need.NONE
    with_devices: Need = Need.NONE

    @property
    def devices(self) -> int:
        """The most CPUs that the group takes from others: a core without its sibling takes both."""
        return 0 if self.is_shared else self.most * (_THREADS if self.siblings is Siblings.DENIED else 1)


def read_parameters(fields: Fields) -> tuple[CoreGroup, ...]:
    """The groups of the parameters; what is wrong becomes problems of the fields."""
    for name in sorted(fields.data.keys() - set(_KEYS)):
        fields.problem(name, f"unknown field{hint(name, _KEYS)}")
    cores = fields.items(CORES)
    if not cores:
        fields.problem(CORES, "needs at least one number of cores")
    read_driver(fields)
    lists = {name: fields.items(name) for name in _LISTS}
    for name, entries in lists.items():
        if entries and len(entries) != len(cores):
            fields.problem(name, f"has {len(entries)} entries, and {CORES} has {len(cores)}: each group has one")
            lists[name] = []
    found = tuple(
        _group(fields, number, {name: each[number] if each else None for name, each in lists.items()})
        for number in range(len(cores))
    )
    total = sum(each.devices for each in found)
    if total > MAX_RESULTS:
        fields.problem(CORES, f"takes {total} CPUs for itself, a claim can hold {MAX_RESULTS} devices")
    return found


def read_driver(fields: Fields) -> str:
    """The driver that parameters name; empty: none."""
    name = fields.text(DRIVER)
    if name and (problem := dns_subdomain(name)):
        fields.problem(DRIVER, f"{shown(name)}: {problem}")
    return name


def _group(fields: Fields, number: int, entries: Mapping[str, object]) -> CoreGroup:
    least, most = _range(fields, number)
    words = _words(fields, number, entries[_CPU])
    siblings = next((each for each in Siblings if each.value and each.value in words), Siblings.ANY)
    device = _choice(fields, f"{_DEVICE}[{number}]", entries[_DEVICE], _OF_DEVICES) or Need.NONE
    bind, interleave = _choice(fields, f"{_MEMORY}[{number}]", entries[_MEMORY], _OF_MEMORY) or (Need.NONE, Need.NONE)
    found = CoreGroup(least, most, _EXCLUSIVE not in words, siblings, bind, interleave, device)
    place = f"{_CPU}[{number}]"
    if found.is_shared:
        if siblings is not Siblings.ANY:
            fields.problem(place, f"{siblings.value} needs {_EXCLUSIVE}")
        if Need.REQUIRED in (bind, interleave, device):
            fields.problem(place, f"{_SHARED} cores belong to no NUMA node: nothing about their place can be REQUIRED")
        return CoreGroup(least, most)
    if siblings is Siblings.REQUIRED and (least % _THREADS or most % _THREADS):
        fields.problem(f"{CORES}[{number}]", f"{siblings.value} needs an even number of cores: siblings are {_THREADS}")
    if interleave is Need.REQUIRED and device is Need.REQUIRED:
        fields.problem(f"{_MEMORY}[{number}]", "cores of several NUMA nodes cannot all be on that of the devices")
    if interleave is Need.REQUIRED and least < _THREADS:
        fields.problem(f"{CORES}[{number}]", "one core cannot be on several NUMA nodes")
    return found


def _range(fields: Fields, number: int) -> tuple[int, int]:
    value = fields.items(CORES)[number]
    match = _RANGE.fullmatch(str(value)) if isinstance(value, str | int) else None
    least = int(match["least"]) if match else 0
    most = int(match["most"] or least) if match else 0
    if match is None or most < least:
        fields.problem(f"{CORES}[{number}]", f'{shown(value)} is neither a number of cores, nor a range such as "6-8"')
        return 1, 1
    return least, most


def _words(fields: Fields, number: int, entry: object) -> Sequence[str]:
    """The CPU attributes of a group; without any, the cores are shared."""
    place = f"{_CPU}[{number}]"
    if entry is None:
        return (_SHARED,)
    if not isinstance(entry, list) or not all(isinstance(each, str) for each in entry):
        fields.problem(place, f"expected a list of texts, not {shown(entry)}")
        return (_SHARED,)
    for each in entry:
        if each not in _OF_CPUS:
            fields.problem(place, f"{shown(each)} is not one of {', '.join(_OF_CPUS)}{hint(each, _OF_CPUS)}")
    if _EXCLUSIVE in entry and _SHARED in entry:
        fields.problem(place, f"cores are either {_EXCLUSIVE} or {_SHARED}")
    if len([each for each in Siblings if each.value in entry]) > 1:
        fields.problem(place, "names two rules for siblings")
    return entry


def _choice(fields: Fields, place: str, entry: object, known: Mapping[str, _T]) -> _T | None:
    if entry is None:
        return None
    if isinstance(entry, str) and entry in known:
        return known[entry]
    fields.problem(place, f"{shown(entry)} is not one of {', '.join(known)}")
    return None


CLASS: Final = "dra.cpu"
"""The device class of dra-driver-cpu; also the name of the driver, and the domain of its attributes."""

_NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
_CORE: Final = (f"{CLASS}/coreID", f"{CLASS}/socketID")
_PAIR: Final = 2
"""CPUs of a core that has siblings."""

_ZONES: Final = 2
"""NUMA nodes over which cores are spread: 0 and 1."""

_ONE_THREAD: Final = f'"smtEnabled" in device.attributes["{CLASS}"] && !device.attributes["{CLASS}"].smtEnabled'

_NEAR, _BOUND, _SPREAD, _SIBLINGS, _ANY = "near", "bound", "spread", "siblings", "any"
_WHOLE, _SINGLE = "whole", "single"

Object = dict[str, Any]


@dataclass(slots=True)
class ClaimParts:
    """The parts that are added to a claim.

    Attributes:
        requests: of CPUs.
        optional: the names of those of them that may be left out: more cores than the least.
        instead: requests of devices that are replaced, by name: where the NUMA node is only preferred.
    """

    requests: list[Object] = field(default_factory=list)
    constraints: list[Object] = field(default_factory=list)
    optional: list[str] = field(default_factory=list)
    instead: dict[str, Object] = field(default_factory=dict)

    def match(self, attribute: str, names: Sequence[str]) -> None:
        """All devices of some requests have the same value of an attribute."""
        if names:
            self.constraints.append({"requests": [*names], "matchAttribute": attribute})


@dataclass(frozen=True, slots=True)
class _Unit:
    """CPUs of one request.

    Attributes:
        is_more: they are beyond the least number of their group.
        zone: the NUMA node for cores that are spread.
        is_plain: they prefer no siblings, whatever their group does.
    """

    name: str
    count: int
    is_more: bool = False
    zone: int = 0
    is_plain: bool = False


def parts_of(groups: Sequence[CoreGroup], devices: Sequence[Object], room: int) -> ClaimParts:
    """The requests for groups of cores.

    Args:
        groups: of one claim.
        devices: the requests that the claim has for other devices.
        room: how many constraints there should be at most. What is preferred is left out as far as that is needed: the
            last pairs first, then NUMA nodes, then those of devices. What is required may need more.
    """
    parts = ClaimParts()
    unbound = [replace(each, bind=_required(each.bind)) for each in groups]
    alone = [replace(each, with_devices=_required(each.with_devices)) for each in unbound]
    for weaker, preferred in product((groups, unbound, alone), range(MAX_RESULTS // _PAIR, -1, -1)):
        parts = _parts(weaker, devices, preferred)
        if len(parts.constraints) <= room and all(len(each["requests"]) <= MAX_RESULTS for each in parts.constraints):
            break
    return parts


def _required(need: Need) -> Need:
    """The need without a preference."""
    return need if need is Need.REQUIRED else Need.NONE


def _parts(groups: Sequence[CoreGroup], devices: Sequence[Object], preferred: int) -> ClaimParts:
    """The requests. Of groups that prefer siblings, only the first ``preferred`` pairs do."""
    parts = ClaimParts()
    names = [each["name"] for each in devices]
    for number, group in enumerate(groups):
        if group.is_shared:
            continue
        units = list(_units(group_prefix(number), group))
        if group.siblings is Siblings.PREFERRED:
            pairs = [each for each in units if each.count == _PAIR]
            plain, preferred = pairs[preferred:], max(0, preferred - len(pairs))
            units = [replace(each, is_plain=each in plain) for each in units]
        alternatives = {each.name: _alternatives(each, group, has_devices=bool(names)) for each in units}
        parts.requests += (_request(each, alternatives[each.name]) for each in units)
        _add_siblings(parts, group, units, alternatives)
        _add_places(parts, group, alternatives, devices)
        parts.optional += (each.name for each in units if each.is_more)
    return parts


def group_prefix(number: int) -> str:
    """The prefix of the names of a group's requests."""
    return f"cores-{number}-"


def _units(prefix: str, group: CoreGroup) -> Iterator[_Unit]:
    """The CPUs that are requested together: the least number, and one or two at a time of those beyond it."""
    least = _sizes(group, group.least, are_together=True)
    more = _sizes(group, group.most - group.least, are_together=False)
    for number, size in enumerate((*least, *more)):
        yield _Unit(f"{prefix}{number}", size, number >= len(least), number % _ZONES)


def _sizes(group: CoreGroup, count: int, *, are_together: bool) -> list[int]:
    """The CPUs of each request for a number of cores; the claim gets all or none of them if they are together."""
    if group.siblings in (Siblings.PREFERRED, Siblings.REQUIRED):
        return [_PAIR] * (count // _PAIR) + [1] * (count % _PAIR)
    if group.siblings is Siblings.DENIED or not are_together:
        return [1] * count
    sizes = [count] if group.interleave is Need.NONE else [count - count // _ZONES, count // _ZONES]
    return [each for each in sizes if each]


def _alternatives(unit: _Unit, group: CoreGroup, *, has_devices: bool) -> list[tuple[str, str]]:
    """The alternatives of a request: its NUMA node and its siblings, the best first; empty: nothing is said."""
    places = [_NEAR] if group.with_devices is Need.PREFERRED and has_devices else []
    places += [_BOUND] if group.bind is Need.PREFERRED and group.most > 1 else []
    places += [_SPREAD] if group.interleave is not Need.NONE else []
    if group.interleave is not Need.REQUIRED:
        places.append("")
    ways = [""]
    if group.siblings is Siblings.DENIED:
        ways = [_WHOLE, _SINGLE]
    elif group.siblings is Siblings.PREFERRED and unit.count == _PAIR and not unit.is_plain:
        ways = [_SIBLINGS, ""]
    return [(place, way) for place in places for way in ways]


def _label(alternative: tuple[str, str]) -> str:
    return "-".join(filter(None, alternative)) or _ANY


def _request(unit: _Unit, alternatives: Sequence[tuple[str, str]]) -> Object:
    ways = [_way(unit, each) for each in alternatives]
    if len(ways) == 1:
        return {"name": unit.name, "exactly": ways[0]}
    named = [{"name": _label(each), **way} for each, way in zip(alternatives, ways, strict=True)]
    return {"name": unit.name, "firstAvailable": named}


def _way(unit: _Unit, alternative: tuple[str, str]) -> Object:
    place, way = alternative
    count = 2 * unit.count if way == _WHOLE else unit.count
    selectors = [_ONE_THREAD] if way == _SINGLE else []
    if place == _SPREAD:
        domain, _, name = _NUMA_NODE.partition("/")
        attributes = f'device.attributes["{domain}"]'
        selectors.append(f'"{name}" in {attributes} && {attributes}.{name} == {unit.zone}')
    found: Object = {"deviceClassName": CLASS, "count": count}
    return found | ({"selectors": [{"cel": {"expression": each}} for each in selectors]} if selectors else {})


def _add_siblings(
    parts: ClaimParts, group: CoreGroup, units: Sequence[_Unit], alternatives: Mapping[str, Sequence[tuple[str, str]]]
) -> None:
    """Each request for CPUs of one core gets them from one core of one socket."""
    for unit in units:
        every = alternatives[unit.name]
        if group.siblings is Siblings.REQUIRED:
            names = _named(unit.name, every, {way for _, way in every})
        else:
            names = _named(unit.name, every, {_WHOLE, _SIBLINGS})
        for attribute in _CORE:
            parts.match(attribute, names)


def _named(name: str, every: Sequence[tuple[str, str]], ways: set[str]) -> list[str]:
    """The alternatives of a request that have one of some ways, as constraints name them."""
    if len(every) == 1:
        return [name] if every[0][1] in ways else []
    return [f"{name}/{_label(each)}" for each in every if each[1] in ways]


def _add_places(
    parts: ClaimParts,
    group: CoreGroup,
    alternatives: Mapping[str, Sequence[tuple[str, str]]],
    devices: Sequence[Object],
) -> None:
    """The group is on one NUMA node, or on that of the devices of the claim, or prefers it."""

    def at(*places: str) -> list[str]:
        return [f"{name}/{_label(each)}" for name, every in alternatives.items() for each in every if each[0] in places]

    names = [each["name"] for each in devices]
    if group.with_devices is Need.REQUIRED and names:
        parts.match(_NUMA_NODE, [*names, *alternatives])
    elif group.bind is Need.REQUIRED and group.most > 1:
        parts.match(_NUMA_NODE, [*alternatives])
    elif group.bind is Need.PREFERRED:
        parts.match(_NUMA_NODE, at(_BOUND))  # those that are near devices are on one NUMA node by that
    if group.with_devices is Need.PREFERRED and names:
        parts.instead |= {each["name"]: _softened(each) for each in devices}
        parts.match(_NUMA_NODE, [*(f"{name}/{_NEAR}" for name in names), *at(_NEAR)])


def _softened(request: Object) -> Object:
    """The request for a device with two equal alternatives: the first is on the NUMA node of cores."""
    own = request["exactly"]
    return {"name": request["name"], "firstAvailable": [{"name": _NEAR, **own}, {"name": _ANY, **own}]}


FILE: Final = "config.json"
CONFIG_MAP: Final = "ConfigMap"


def has_parameters(obj: Mapping[str, object]) -> bool:
    """Whether an object is a claim or a claim template with the parameters of a compute claim."""
    spec = _claim_spec(obj)
    return spec is not None and any(_is_ours(each) for each in _configs(spec))


def with_cores(obj: Mapping[str, object]) -> Mapping[str, object]:
    """The object with the requests for its cores: a ConfigMap becomes a claim template. Any other object as it is.

    Raises:
        InvalidObjectError: all that is wrong with the parameters.
    """
    if obj.get("kind") == CONFIG_MAP and obj.get("apiVersion") == "v1":
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
    is_text = written.get("kind") == CONFIG_MAP
    place = f"data[{FILE}]" if is_text else f"{_path(obj)}.devices.config[{number}].opaque.parameters"
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
    text = data.get(FILE) if isinstance(data, dict) else None
    if not isinstance(text, str) or f'"{CORES}"' not in text:
        return None
    try:
        parameters = loads(text.encode(errors="surrogatepass"))
    except ValueError as error:
        problem = Problem(f"data[{FILE}]", f"is not JSON: {error}")
        raise InvalidObjectError(CONFIG_MAP, _name(config_map), (problem,)) from error
    if not isinstance(parameters, dict):
        problem = Problem(f"data[{FILE}]", f"expected an object, not {shown(parameters)}")
        raise InvalidObjectError(CONFIG_MAP, _name(config_map), (problem,))
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


class Cores(NamedTuple):
    """The number of cores that claims take for themselves: at least, and where more are free."""

    least: int = 0
    most: int = 0


def cores_of(specs: Iterable[ClaimSpec]) -> Cores:
    """The cores that claims take for themselves. Cores that keep their siblings free count without these."""
    found = list(map(_cores, specs))
    return Cores(sum(each.least for each in found), sum(each.most for each in found))


def cci_drivers_of(specs: Iterable[ClaimSpec]) -> Sequence[str]:
    """The CCI drivers that claims name in their own parameters."""
    named = (read_driver(Fields(each, "", [])) for spec in specs for each in _own_parameters(spec))
    return sorted({name for name in named if name})


def _own_parameters(spec: ClaimSpec) -> Iterator[Object]:
    texts = (each.opaque.parameters for each in spec.configs if each.opaque.driver == CLASS)
    own = (loads(text.encode(errors="surrogatepass")) for text in texts)
    return (each for each in own if isinstance(each, dict))


def _cores(spec: ClaimSpec) -> Cores:
    groups = [group for each in _own_parameters(spec) if CORES in each for group in _readable(each)]
    if groups:
        alone = [each for each in groups if not each.is_shared]
        return Cores(sum(each.least for each in alone), sum(each.most for each in alone))
    counts = {
        request.name: min(each.count if each.device_class == CLASS else 0 for each in request.alternatives)
        for request in spec.requests
    }
    return Cores(sum(n for name, n in counts.items() if name not in spec.optional), sum(counts.values()))


def _readable(parameters: Object) -> tuple[CoreGroup, ...]:
    fields = Fields(parameters, "", [])
    groups = read_parameters(fields)
    return () if fields.problems else groups


def too_little_cpu(cpu: int, cores: Cores) -> str:
    """The problem with a pod that requests less CPU than its claims take; empty: nothing.

    Args:
        cpu: what the scheduler reserves for the pod, in thousandths of a core.
        cores: of its claims.
    """
    if cpu >= _CORE_CPU * cores.least:
        return ""
    asked = f"its claims take {cores.least} CPUs, and its containers request cpu {cpu / _CORE_CPU:g}"
    return f"{asked}: the scheduler gives the others to other pods, too; write cpu {cores.least}"


def too_much_cpu(cpu: int, cores: Cores) -> str:
    """The problem with a container that requests more CPU than the claims that it names take; empty: nothing."""
    if not cores.most or cpu <= _CORE_CPU * cores.most:
        return ""
    return f"cpu {cpu / _CORE_CPU:g} is requested, and the container runs on the {cores.most} CPUs of its claims alone"
