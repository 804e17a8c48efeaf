"""ResourceClasses that are not accepted: there is no DeviceClass for them."""

from collections.abc import Iterator

from extender.cluster.objects.resource_classes import ResourceClass
from extender.framework.problem import Look, Problem
from extender.kube.api import ObjectKey
from extender.kube.resources import RESOURCE_CLASSES


def problems(look: Look) -> Iterator[Problem]:
    """One for each class that was refused."""
    for each in look.snapshot.objects(ResourceClass).values():
        if each.refusal:
            key, cost = ObjectKey("", each.name), "pods that ask for the class wait"
            advice = "correct the class"
            yield Problem("resource-class", RESOURCE_CLASSES.kind, key, f"not accepted: {each.refusal}", cost, advice)
