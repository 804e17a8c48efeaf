"""`dra-extender validate`: what is used, skipped and wrong in manifests."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from allocator import Claim, ClaimSpec, ClaimTemplate, Features, Inventory, Slice
from allocator.model.json import (
    CONTROLLER,
    IN_SIMULATIONS,
    PARAMETERS_REF,
    SUITABLE_NODES,
    ParametersRefError,
    parameters_ref,
)
from allocator.model.optional import OPTIONAL_REQUESTS, optional_problem
from allocator.tools import Fields, did_you_mean, nearest
from extender.autoscaler.readiness import DRIVERS
from extender.cluster.compute_claims import cores_of, too_little_cpu, too_much_cpu
from extender.cluster.objects.claims import (
    ALLOCATION_MODE,
    DEALLOCATION_REQUESTED,
    MARK,
    PRIORITY,
    ClaimObject,
    mode_problem,
)
from extender.cluster.objects.pods import GROUP, GROUP_SIZE, GROUP_TOPOLOGY, POLICY
from extender.cluster.resources import cpu_of, cpu_request
from extender.faces.commands.convert import judgements_of, refusals
from extender.faces.commands.options import Output, OutputOption, PathsArgument, command
from extender.faces.commands.output import print_result, refuse, warn
from extender.faces.commands.reading import manifests_of
from extender.framework.cycle import policy_problem
from extender.kube.resources import CLAIMS, TEMPLATES
from extender.lab.manifests import (
    DEFAULT_NAMESPACE,
    FileReport,
    Loaded,
    ManifestObject,
    duplicates,
    over_quota,
    unauthorized,
)
from extender.tools.table import TextTable

_DOMAIN: Final = "dra-extender.dev/"
_OF_CLAIMS: Final = (OPTIONAL_REQUESTS, ALLOCATION_MODE, PRIORITY)
_ANNOTATIONS: Final = (
    POLICY,
    DRIVERS,
    *_OF_CLAIMS,
    GROUP,
    GROUP_SIZE,
    GROUP_TOPOLOGY,
    CONTROLLER,
    SUITABLE_NODES,
    IN_SIMULATIONS,
    PARAMETERS_REF,
    MARK,
    DEALLOCATION_REQUESTED,
)
_METADATA: Final = (
    ("metadata",),
    ("spec", "metadata"),
    ("spec", "template", "metadata"),
    ("spec", "jobTemplate", "spec", "template", "metadata"),
)
"""Where an object, or the pods of a workload, have annotations."""


@command(
    "dra-extender validate config/example",
    "kubectl get resourceslices -o yaml | dra-extender validate -",
    "dra-extender validate config/example -o yaml",
)
def validate(paths: PathsArgument, output: OutputOption = Output.TABLE) -> None:
    """Read manifests and print for each file what is used, what is skipped, and what is wrong."""
    loaded = manifests_of(paths)
    print_result(
        output,
        names=lambda: (str(report.path) for report in loaded.files),
        data=lambda: [_report_json(report) for report in loaded.files],
        table=lambda: _table(loaded.files),
    )
    warn(*(f"{report.path}: no objects" for report in loaded.files if report.is_empty))
    warn(*(f"not for one cluster: {twice}" for twice in duplicates(loaded.objects)))
    warn(*map(str, (*unauthorized(loaded.objects), *over_quota(loaded.objects))))
    warn(*refusals(judgements_of(loaded.objects)))
    warn(*_unusable_pools(loaded.objects), *_not_counted(loaded.objects), *_unknown_annotations(loaded.documents))
    warn(*_wrong_annotations(loaded.objects), *_misplaced_annotations(loaded.documents))
    warn(*_conflicts_about_cores(loaded))
    refuse(loaded.problems)


def _unusable_pools(objects: Iterable[ManifestObject]) -> Iterator[str]:
    """Pools whose devices no claim can have, because slices are missing or contradict each other."""
    slices = [each.value for each in objects if isinstance(each.value, Slice)]
    for identity, pool in sorted(Inventory.of(slices).pools.items()):
        if problem := pool.problem(Features()):
            yield f"no device of pool {identity} can be used: {problem}"


_DROPPED: Final = "nodeAllocatableResourceMappings"


def _not_counted(objects: Iterable[ManifestObject]) -> Iterator[str]:
    """Slices with devices that take CPU or memory of their nodes in the form of Kubernetes 1.36 alone."""
    for each in objects:
        if not isinstance(each.value, Slice):
            continue
        spec = Fields(_map_at(each.data, ("spec",)), "spec", [])
        devices = (part for device in spec.children("devices") for part in (device, device.child("basic")))
        found = [device.at(_DROPPED) for device in devices if device.has(_DROPPED)]
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            what = "is the form of Kubernetes 1.36, and not counted; 1.37 has nodeAllocatableResources instead"
            yield f"{each.source}: {each}: {found[0]}{more}: {what}"


def _unknown_annotations(documents: Iterable[ManifestObject]) -> Iterator[str]:
    """Annotations in the domain of dra-extender that it does not read, and unknown policies.

    They are looked for on objects and in the templates of workloads.
    """
    for each in documents:
        for path in _METADATA:
            for name, value in _map_at(each.data, (*path, "annotations")).items():
                problem = ""
                if name == POLICY:
                    problem = policy_problem(str(value))
                elif name.startswith(_DOMAIN) and name not in _ANNOTATIONS:
                    problem = f"unknown annotation{did_you_mean(nearest(name, _ANNOTATIONS))}"
                if problem:
                    yield f"{each.source}: {each}: {'.'.join(path)}.annotations[{name}]: {problem}"


def _wrong_annotations(objects: Iterable[ManifestObject]) -> Iterator[str]:
    """Claims and templates whose annotations name requests that they do not have, or contradict each other."""
    for each in objects:
        value = each.value.claim if isinstance(each.value, ClaimObject) else each.value
        if isinstance(value, (Claim, ClaimTemplate)):
            annotations = value.annotations
            problems = (optional_problem(value.spec), mode_problem(annotations), _parameters_problem(annotations))
            yield from (f"{each.source}: {each}: {problem}" for problem in problems if problem)


def _parameters_problem(annotations: Mapping[str, str]) -> str:
    try:
        parameters_ref(annotations)
    except ParametersRefError as error:
        return str(error)
    return ""


def _misplaced_annotations(documents: Iterable[ManifestObject]) -> Iterator[str]:
    """Annotations of claims on other objects, such as the template itself: they have no effect there."""
    for each in documents:
        for path in _METADATA:
            is_of_claim = each.kind == CLAIMS.kind or (each.kind == TEMPLATES.kind and path == ("spec", "metadata"))
            for name in _map_at(each.data, (*path, "annotations")):
                if name in _OF_CLAIMS and not is_of_claim:
                    where = f"{each.source}: {each}: {'.'.join(path)}.annotations[{name}]"
                    yield f"{where}: has no effect here; it is for claims, and for spec.metadata of their templates"


_PODS: Final = (("spec",), ("spec", "template", "spec"), ("spec", "jobTemplate", "spec", "template", "spec"))
"""Where an object, or the pods of a workload, have the spec of a pod."""


def _conflicts_about_cores(loaded: Loaded) -> Iterator[str]:
    """Pods that request another CPU than their claims take, unless the devices take it of the node themselves."""
    claims: dict[tuple[str, str, str], ClaimSpec] = {}
    for each in loaded.objects:
        value = each.value.claim if isinstance(each.value, ClaimObject) else each.value
        if isinstance(value, (Claim, ClaimTemplate)):
            claims[each.kind, each.namespace, each.name] = value.spec
        elif isinstance(value, Slice) and any(device.node_resources for device in value.devices):
            return
    for each in loaded.documents:
        for path in _PODS:
            spec = _map_at(each.data, path)
            of_pod = dict(_claims_of(spec, each.namespace or DEFAULT_NAMESPACE, claims))
            for field, problem in _about_cores(spec, of_pod):
                yield f"{each.source}: {each}: {'.'.join(path)}.{field}: {problem}"


def _claims_of(
    spec: Mapping[str, object], namespace: str, claims: Mapping[tuple[str, str, str], ClaimSpec]
) -> Iterator[tuple[str, ClaimSpec]]:
    """The claims of a pod that are among the manifests, by the name of their entry."""
    for entry in Fields(spec, "", []).children("resourceClaims"):
        for kind in (CLAIMS.kind, TEMPLATES.kind):
            found = claims.get((kind, namespace, entry.text(f"{kind[0].lower()}{kind[1:]}Name")))
            if found is not None:
                yield entry.text("name"), found


def _about_cores(spec: Mapping[str, object], claims: Mapping[str, ClaimSpec]) -> Iterator[tuple[str, str]]:
    """The problem with the CPU of a pod, each with its field."""
    if problem := too_little_cpu(cpu_request(spec), cores_of(claims.values())):
        yield "containers", problem
    for number, each in enumerate(Fields(spec, "", []).children("containers") if claims else ()):
        resources = each.child("resources")
        named = {entry.text("name") for entry in resources.children("claims")}
        cpu = cpu_of(resources.mapping("requests")) or cpu_of(resources.mapping("limits")) or 0
        if problem := too_much_cpu(cpu, cores_of(found for name, found in claims.items() if name in named)):
            yield f"containers[{number}].resources", problem


def _map_at(data: object, path: Iterable[str]) -> Mapping[str, object]:
    """The map at a path of an object; empty if there is none."""
    for name in path:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _table(files: Iterable[FileReport]) -> TextTable:
    rows = [(str(each.path), _counts(each.used), _counts(each.skipped), str(len(each.problems))) for each in files]
    return TextTable(("file", "used", "skipped", "errors"), rows)


def _counts(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "-"


def _report_json(report: FileReport) -> dict[str, object]:
    return {
        "file": str(report.path),
        "used": dict(report.used),
        "skipped": dict(report.skipped),
        "errors": [str(problem) for problem in report.problems],
    }
