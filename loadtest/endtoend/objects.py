"""The API objects of a workload: nodes with devices, classes, claims or templates, pods."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Final

from extender.kube.api import RawObject
from loadtest.endtoend.workload import Wish, Workload
from tests.kit.controlplane.controllers import Licensing, entry
from tests.kit.controlplane.scenario import by_name, by_template
from tests.kit.objects.manifests import pod, template
from tests.kit.objects.parts import api_object, selectors
from tests.kit.objects.worlds import pending_claim

NAMESPACE: Final = "bench"
RESIDENTS: Final = 10
"""Pods that run and report, where there are such."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The objects of a workload, in the order in which they are made.

    Attributes:
        hopeless: pods that will get no node. A scheduler that starts takes pods by name, and these are the first.
        fitting: pods that are to get one.
        residents: pods that have one from the start, and no claims.
    """

    templates: tuple[RawObject, ...]
    claims: tuple[RawObject, ...]
    hopeless: tuple[RawObject, ...]
    fitting: tuple[RawObject, ...]
    residents: tuple[RawObject, ...]


def batch(workload: Workload, pods: int, nodes: Sequence[str]) -> Batch:
    """What is made for one run.

    Args:
        workload: what it is for.
        pods: how many are to get a node.
        nodes: the names of all nodes; pods that run already are on the first.
    """
    names = [f"pod-{number:06d}" for number in range(pods)]
    claims, templates, fitting = list[RawObject](), list[RawObject](), list[RawObject]()
    if not workload.wishes:
        fitting += (pod(NAMESPACE, name) for name in names)
    elif workload.claims == "from-templates":
        templates += (_template(workload, wish, shape) for shape, wish in _shapes(workload.wishes))
        shapes = cycle(shape for shape, _ in _shapes(workload.wishes))
        fitting += (
            pod(NAMESPACE, name, claims=[by_template(shape)]) for name, shape in zip(names, shapes, strict=False)
        )
    else:
        claims += (_claim(workload, wish, name) for name, wish in zip(names, cycle(workload.wishes), strict=False))
        fitting += map(_pod_with_claim, names)
    nowhere = list[str]()
    if workload.hopeless:
        nowhere += (f"nowhere-{number:06d}" for number in range(round(pods * workload.hopeless.per_pod)))
        claims += [_claim(workload, workload.hopeless.wish, name) for name in nowhere]
    running = nodes[:RESIDENTS] if workload.status_updates_per_second else ()
    return Batch(
        templates=tuple(templates),
        claims=tuple(claims),
        hopeless=tuple(map(_pod_with_claim, nowhere)),
        fitting=tuple(fitting),
        residents=tuple(pod(NAMESPACE, f"resident-{i}", nodeName=node) for i, node in enumerate(running)),
    )


def with_licenses(made: Batch, controllers: Sequence[Licensing]) -> Batch:
    """The batch whose pods have a negotiated claim each as well, of the next controller in turn."""
    if not controllers:
        return made
    names = [each["metadata"]["name"] for each in made.fitting]
    licenses = [next_.claim(NAMESPACE, _license(name)) for name, next_ in zip(names, cycle(controllers), strict=False)]
    pods = [pod(NAMESPACE, name, claims=[by_name(name), entry(_license(name))]) for name in names]
    return replace(made, claims=(*made.claims, *licenses), fitting=tuple(pods))


def device_classes(classes: Iterable[tuple[str, str]]) -> Iterator[RawObject]:
    """Classes, of their names and CEL selectors."""
    for name, selector in classes:
        yield api_object("DeviceClass", name, spec={"selectors": selectors(selector)})


def unmade(obj: RawObject, namespace: str = "") -> RawObject:
    """An object without what an API server gives it, to be made in a namespace."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in {"uid", "resourceVersion"}}
    return obj | {"metadata": metadata | ({"namespace": namespace} if namespace else {})}


def _shapes(wishes: Iterable[Wish]) -> Iterator[tuple[str, Wish]]:
    """Wishes with the names of their templates."""
    for number, wish in enumerate(wishes):
        yield f"shape-{number}", wish


def _template(workload: Workload, wish: Wish, name: str) -> RawObject:
    return template(NAMESPACE, name, pending_claim(workload.plain(wish))["spec"])


def _claim(workload: Workload, wish: Wish, name: str) -> RawObject:
    return unmade(pending_claim(workload.plain(wish), name), NAMESPACE)


def _license(name: str) -> str:
    return f"{name}-license"


def _pod_with_claim(name: str) -> RawObject:
    """A pod with the claim of its name."""
    return pod(NAMESPACE, name, claims=[by_name(name)])
