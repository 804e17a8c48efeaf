"""Clusters whose free devices are in pieces, and pods that move: by name, what a defragmentation says of them."""

from collections.abc import Sequence
from typing import Any

from extender.answers.defragmentation.advice import Advice
from extender.answers.defragmentation.defragment import SearchBounds, defragment
from extender.kube.api import ObjectKey
from tests.kit.clusters import Object, claim, pod, request, snapshot_of, solver

FOREIGN = {"apiGroup": "example.com", "resource": "experiments", "name": "x", "uid": "uid-x"}


def owned(running: list[Object], kind: str = "ReplicaSet", name: str = "web") -> list[Object]:
    """The pod has a controller."""
    running[0]["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    ]
    return running


def runs(name: str, *devices: str, on: str, **more: Any) -> list[Object]:
    """A pod without a controller that runs on a node with devices of its own claim."""
    own = claim(f"{name}-c", request(count=len(devices)), allocated=devices, at=on, users=[name])
    return [pod(name, f"{name}-c", on=on, **more), own]


def moves(name: str, *devices: str, on: str, **more: Any) -> list[Object]:
    """As `runs`, with a controller that makes the pod again."""
    return owned(runs(name, *devices, on=on, **more))


def waits(name: str, count: int = 1, **more: Any) -> list[Object]:
    """A pod that waits for some devices on one node."""
    return [pod(name, f"{name}-c", **more), claim(f"{name}-c", request(count=count))]


def advice(*objects: Object, most_moves: int = 3, only: str = "", schedulers: Sequence[str] = ()) -> Advice:
    key = ObjectKey("ns", only) if only else None
    bounds = SearchBounds(most_moves)
    return defragment(snapshot_of(*objects), solver(), only=key, bounds=bounds, schedulers=schedulers)


def said(found: Advice) -> list[str]:
    """A line for each shape: whom it serves, where, and how; or why there is no proposal."""
    return [
        f"{', '.join(each.proposal.placed)} on {each.proposal.node}: {'; '.join(map(str, each.proposal.moves))}"
        if each.proposal
        else f"{', '.join(each.pods)}: {each.reason}"
        for each in found.shapes
    ]


def spared(found: Advice) -> dict[str, tuple[str, ...]]:
    """What protects pods, and the pods."""
    return {each.reason: each.names for each in found.spared}
