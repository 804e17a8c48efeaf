"""`dra-extender convert`: ResourceClasses and compute claims as objects of Kubernetes."""

from collections.abc import Iterable, Sequence
from typing import Any

import typer
import yaml

from allocator import DeviceClass
from extender.cluster.compute_claims import has_parameters
from extender.cluster.objects.resource_classes import ResourceClass
from extender.faces.commands.options import PathsArgument, command
from extender.faces.commands.output import FOUND_PROBLEMS, note, refuse, say
from extender.faces.commands.reading import manifests_of
from extender.framework.pods.extended_resources.requests import devices_json, group_requests
from extender.kube.resources import CLASSES, RESOURCE_CLASSES, TEMPLATES
from extender.lab.manifests import ManifestObject
from extender.plugins.resource_classes.device_class import ClassJudgement, judge


@command("dra-extender convert classes.yaml", "dra-extender convert classes.yaml | kubectl apply -f -")
def convert(paths: PathsArgument) -> None:
    """Print the DeviceClass of each ResourceClass, for clusters where the kind ResourceClass is not installed.

    For a class with members, a ResourceClaimTemplate is printed, too: with it, pods of every scheduler get the devices.
    A claim or a claim template with the parameters of a compute claim is printed with requests for the cores. A
    ConfigMap with such parameters is printed as a ResourceClaimTemplate.
    """
    loaded = manifests_of(paths)
    judgements = judgements_of(loaded.objects)
    made = [each.device_class for each in judgements if each.device_class is not None]
    for each in made:
        del each["metadata"]["ownerReferences"]  # without the kind, there is no owner
    computing = [dict(each.data) for each in loaded.objects if has_parameters(each.data)]
    made += _templates(each.resource_class for each in judgements if each.device_class is not None)
    made += computing
    if made:
        typer.echo(yaml.safe_dump_all(made, sort_keys=False, allow_unicode=False), nl=False)
    if not judgements and not computing:
        note("there is no ResourceClass and no compute claim")
    refused = list(refusals(judgements))
    say(*refused)
    refuse(loaded.problems)
    if refused:
        raise typer.Exit(FOUND_PROBLEMS)


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
    """What becomes of the ResourceClasses of manifests."""
    classes = [each.value for each in objects if isinstance(each.value, ResourceClass)]
    existing = [dict(each.data) for each in objects if isinstance(each.value, DeviceClass)]
    return judge(classes, existing, CLASSES.api_versions()[0])


def refusals(judgements: Iterable[ClassJudgement]) -> Iterable[str]:
    """The classes that are not accepted, with the reason."""
    for each in judgements:
        if each.device_class is None:
            yield f"{RESOURCE_CLASSES.kind} {each.resource_class.name} is not accepted: {each.message}"
