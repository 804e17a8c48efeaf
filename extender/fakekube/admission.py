"""Objects of manifests that one cluster cannot have, although nothing is wrong with each alone."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from extender.fakekube.manifests import RawObject
from extender.kube.api import CLAIMS, NAMESPACES, TEMPLATES
from extender.kube.claim_rules import admin_problems
from extender.state.objects import parse_namespace


@dataclass(frozen=True, slots=True)
class Refusal:
    """An object that an API server would refuse, and why."""

    object: RawObject
    text: str

    def __str__(self) -> str:
        return self.text


def duplicates(objects: Iterable[RawObject]) -> tuple[Refusal, ...]:
    """Objects that appear more than once, each with its files; the first one is not among them."""
    first: dict[tuple[str, str, str], RawObject] = {}
    found = []
    for each in objects:
        other = first.setdefault((each.kind, each.namespace, each.name), each)
        if other is not each:
            found.append(Refusal(each, f"{each} is in {other.source} and again in {each.source}"))
    return tuple(found)


def unauthorized(objects: Collection[RawObject]) -> tuple[Refusal, ...]:
    """Claims and claim templates with adminAccess that an API server would refuse in their namespaces.

    A namespace that is not among the objects has no labels. Allocated claims were accepted before.
    """
    labels = {each.name: parse_namespace(each.data) for each in objects if each.kind == NAMESPACES.kind}
    found = []
    for each in objects:
        if each.kind not in {CLAIMS.kind, TEMPLATES.kind} or _is_allocated(each.data):
            continue
        where = (
            f" {each.namespace}" if each.namespace in labels else f" {each.namespace}, which is not among the manifests"
        )
        problems = admin_problems(dict(each.data), labels.get(each.namespace, {}))
        found += [Refusal(each, f"{each.source}: {each}: {problem}{where}") for problem in problems]
    return tuple(found)


def _is_allocated(data: Mapping[str, object]) -> bool:
    status = data.get("status")
    return isinstance(status, dict) and bool(status.get("allocation"))
