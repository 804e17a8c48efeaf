"""`dra-extender convert`: ResourceClasses, compute claims and objects of earlier APIs as objects of Kubernetes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import typer
import yaml

from allocator import DeviceClass
from extender.cluster.compute_claims import has_parameters
from extender.cluster.objects.resource_classes import ResourceClass
from extender.faces.commands.options import PathsArgument, command
from extender.faces.commands.output import FOUND_PROBLEMS, first_of, note, refuse, say
from extender.faces.commands.reading import manifests_of
from extender.framework.pods.extended_resources import devices_json, group_requests
from extender.kube.claim_rules import check_expression
from extender.kube.resources import CLAIMS, CLASSES, RESOURCE_CLASSES, TEMPLATES
from extender.lab.manifests import Loaded, ManifestObject, load_objects
from extender.lab.old_forms import rewritten
from extender.plugins.resource_classes.device_class import ClassJudgement, judge

_MOST_NAMED: Final = 5
"""Objects that are not printed."""


@command("dra-extender convert classes.yaml", "dra-extender convert classes.yaml | kubectl apply -f -")
def convert(paths: PathsArgument) -> None:
    """Print manifests that are written as proposals or earlier APIs have them, as objects of today.

    Printed are: the DeviceClass of each ResourceClass, and for a class with members a ResourceClaimTemplate, with which
    pods of every scheduler get the devices. A claim or a claim template with the parameters of a compute claim, with
    requests for the cores, and a ConfigMap with such parameters as a ResourceClaimTemplate. And what has fields of
    resource.k8s.io/v1alpha1 to v1alpha3 (KEP-3063), with those of today.

    What has no counterpart today is told with object and field. Objects without old fields are not printed.
    """
    loaded = manifests_of(paths)
    judgements = judgements_of(loaded.objects)
    old = _rewritten(loaded, judgements)
    made = [each.device_class for each in judgements if each.device_class is not None]
    for each in made:
        del each["metadata"]["ownerReferences"]  # without the kind, there is no owner
    claims = [each for each in old.objects if each["kind"] in {CLAIMS.kind, TEMPLATES.kind}]
    computing = [each for each in loaded.objects if has_parameters(each.data) and not _is_a_part(each, claims)]
    made += _templates(each.resource_class for each in judgements if each.device_class is not None)
    made += [dict(each.data) for each in computing]
    made += old.objects
    if made:
        typer.echo(yaml.safe_dump_all(made, sort_keys=False, allow_unicode=False), nl=False)
    if not made and not old.read:
        note("there is no ResourceClass, no compute claim and no object of an earlier API")
    others = [each for each in loaded.documents if each not in old.read and not _is_read(each)]
    if old.read and others:
        note(f"not printed, for nothing in it is old: {first_of([*map(str, others)], _MOST_NAMED)}")
    refused = [*refusals(judgements), *old.problems]
    say(*refused)
    refuse(loaded.problems_of_others(old.read))
    if refused:
        raise typer.Exit(FOUND_PROBLEMS)


def _is_read(each: ManifestObject) -> bool:
    return isinstance(each.value, ResourceClass) or has_parameters(each.data)


@dataclass(frozen=True, slots=True)
class _Old:
    """The conversion of objects of earlier APIs.

    Attributes:
        read: the objects that have become others.
        objects: those of today.
        problems: what is lost, and what is wrong with the objects of today.
    """

    read: list[ManifestObject]
    objects: list[dict[str, Any]]
    problems: list[str]


def _rewritten(loaded: Loaded, judgements: Iterable[ClassJudgement]) -> _Old:
    """The objects of earlier APIs, as objects of today."""
    written = {id(each.data): each for each in (*loaded.rejected, *loaded.documents)}
    resources = {each.resource_class.name: each.resource_class.asked_as for each in judgements if each.device_class}
    old = _Old([], [], [])
    for each in rewritten([one.data for one in loaded.rejected], [one.data for one in loaded.documents], resources):
        before = written[id(each.before)]
        old.read.append(before)
        lost = (change.problem for change in each.changes if change.is_lost)
        old.problems.extend(f"{before.source}: {before}: {problem}" for problem in lost)
        if each.made is not None:
            checked = load_objects([each.made], str(before.source), check_expression)
            old.problems.extend(checked.problems)
            old.objects.extend([] if checked.problems else [dict(each.made)])
    return old


def _is_a_part(computing: ManifestObject, made: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a claim that is written anew has the parameters of a ConfigMap, which was read as a claim template."""
    devices = _devices(computing.data)
    return any(_devices(each) == devices for each in made)


def _devices(obj: Mapping[str, Any]) -> object:
    """What a claim or a claim template asks for."""
    spec = obj["spec"]
    return spec.get("spec", spec).get("devices")


def _templates(classes: Iterable[ResourceClass]) -> Iterable[dict[str, Any]]:
    """A claim template for each class with members, of its name."""
    for each in classes:
        if each.group is not None:
            yield {
                "apiVersion": TEMPLATES.api_versions()[0],
                "kind": TEMPLATES.kind,
                "metadata": {"name": each.name},
                "spec": {"spec": {"devices": devices_json(*group_requests(each.group))}},
            }


def judgements_of(objects: Sequence[ManifestObject]) -> Sequence[ClassJudgement]:
    """The judgements of the ResourceClasses of manifests."""
    classes = [each.value for each in objects if isinstance(each.value, ResourceClass)]
    existing = [dict(each.data) for each in objects if isinstance(each.value, DeviceClass)]
    return judge(classes, existing, CLASSES.api_versions()[0])


def refusals(judgements: Iterable[ClassJudgement]) -> Iterable[str]:
    """The classes that are not accepted, with the reason."""
    for each in judgements:
        if each.device_class is None:
            yield f"{RESOURCE_CLASSES.kind} {each.resource_class.name} is not accepted: {each.message}"
