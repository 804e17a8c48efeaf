"""What special claims are tried on: nodes with devices, one with a device plugin, and a binder."""

from collections.abc import Sequence
from typing import Any

from allocator import Features
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import SPECIAL
from extender.framework.filter import Bounds, filter_nodes
from extender.framework.pods.extended_resources import request_nouns
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from tests.kit import virtualtime
from tests.kit.binders import bind_error, binder_over, held
from tests.kit.clusters import device_class, local_slice, node, pod, solver
from tests.kit.servers.memory import Fault, Transport, memory_api

EVERYTHING = Features()
GPU = "example.com/gpu"
FORBIDDEN = ApiError(403, "Forbidden", "not allowed")
CREATE, PROTECT, ALLOCATE = "create resourceclaims", "update resourceclaims", "update_status resourceclaims"
TELL, BIND, DELETE = "patch_status pods", "bind pods", "delete resourceclaims"


def pod_for(amount: str = "1", *claims: str, name: str = "p", **resources: str) -> RawObject:
    return pod(name, *claims, resources={GPU: amount, "cpu": "1", **resources})


class Scene:
    """Nodes n and o have two devices each, m has a device plugin with four; a class serves example.com/gpu."""

    def __init__(self, *objects: RawObject) -> None:
        there = [
            node("n"),
            node("o"),
            node("m", allocatable={GPU: "4"}),
            local_slice("n", 2),
            local_slice("o", 2),
            device_class(extended=GPU),
        ]
        self.api = memory_api(*there, *objects)
        self.new_process()

    def new_process(self) -> None:
        """The extender starts anew: it knows what the API server has."""
        self.state = ClusterState()
        self.api.follow(self.state)
        self.transport = Transport(self.api)
        self.binder = binder_over(self.transport, self.state)

    def filter(
        self, name: str = "p", nodes: Sequence[str] = ("n", "m", "o"), features: Features = EVERYTHING
    ) -> dict[str, str]:
        """The reason against each node; empty for those that will do."""
        snapshot = self.state.snapshot
        asked = snapshot.pods[ObjectKey("ns", name)]
        bounds, noun = Bounds(late=self.binder.late), request_nouns(asked)
        result = filter_nodes(asked, nodes, snapshot, solver(features=features), bounds=bounds)
        return dict.fromkeys(result.passed, "") | result.unresolvable.in_words(noun) | result.failed.in_words(noun)

    def bind(self, on: str = "n", name: str = "p") -> str:
        return virtualtime.run(bind_error(self.binder, name, on))

    @property
    def special(self) -> list[RawObject]:
        claims = virtualtime.run(self.api.list(CLAIMS)).items
        return [each for each in claims if each["metadata"].get("annotations", {}).get(SPECIAL) == "true"]

    def status(self, name: str = "p") -> dict[str, Any]:
        found: RawObject = virtualtime.run(self.api.get(PODS, ObjectKey("ns", name)))
        return {"nodeName": found["spec"].get("nodeName"), **(found["status"].get("extendedResourceClaimStatus") or {})}

    @property
    def held(self) -> set[str]:
        return held(self.state)


def left_behind(scene: Scene) -> str:
    """A bind on n ends just before its Binding; what is left is a special claim on n."""
    scene.transport.script(BIND, *[Fault(lost=True)] * 9)
    assert "outcome unknown" in scene.bind("n")
    scene.new_process()
    (made,) = scene.special
    return str(made["metadata"]["uid"])
