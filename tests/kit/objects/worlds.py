"""Worlds to decide in: clusters as API objects, of any size, partly in use, and the claims of a pod to come.

The same objects are read by `loadtest.decision_bench` and, as a JSON file, by the program in ``loadtest/peer``.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.kit.objects.parts import DRIVER, allocation, api_object, claim_spec, exactly, of_driver, slice_spec

RawObject = dict[str, Any]

NAMESPACE: Final = "default"
ROOT: Final = "resource.kubernetes.io/pcieRoot"
WHOLE_GPUS: Final = f'device.attributes["{DRIVER}"].model == "a100"'
SLICES_OF_GPUS: Final = f'device.attributes["{DRIVER}"].profile == "1g.10gb"'
_PARTS: Final = 7


@dataclass(frozen=True, slots=True)
class Machine:
    """What each node has.

    Attributes:
        gpus: whole devices, each with a uuid of its own.
        roots: PCIe roots that they are spread over.
        partitioned: each GPU can be had as a whole or in seven parts, so there are eight times as many devices.
    """

    gpus: int = 8
    roots: int = 2
    partitioned: bool = False

    @property
    def names(self) -> list[str]:
        """The devices that a scheduler hands out to small pods."""
        parts = [f"-{part}" for part in range(_PARTS)] if self.partitioned else [""]
        return [f"gpu-{gpu}{part}" for gpu in range(self.gpus) for part in parts]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a pod asks for: one claim with a request for each of the counts."""

    counts: tuple[int, ...] = (1,)
    selector: str = WHOLE_GPUS
    match: str = ""
    device_class: str = DRIVER


def world(
    nodes: int, machine: Machine, wish: Wish, *, in_use: float = 0.4, scattered: bool = True
) -> dict[str, list[RawObject]]:
    """Nodes, slices, classes, allocated claims, and the pending claim of a pod.

    Args:
        nodes: how many.
        machine: what each of them has.
        wish: what the pod asks for.
        in_use: how much of all devices is allocated.
        scattered: which ones is up to chance (always the same), as after pods have come and gone; else as a scheduler
            leaves them that fills one node after the other.
    """
    chance = random.Random(1)
    full = int(nodes * in_use)
    names = [f"node-{number:05d}" for number in range(nodes)]
    return {
        "nodes": [_node(name) for name in names],
        "slices": [each for name in names for each in _slices(name, machine)],
        "classes": [_object("DeviceClass", DRIVER, spec={"selectors": of_driver()})],
        "allocated": [
            allocated_claim(f"{name}-{device}", name, [device])
            for number, name in enumerate(names)
            for device in machine.names
            if (chance.random() < in_use if scattered else number < full)
        ],
        "pending": [pending_claim(wish)],
    }


def pending_claim(wish: Wish, name: str = "pending") -> RawObject:
    """A claim without an allocation."""
    requests = [
        exactly(f"request-{number}", wish.device_class, count, wish.selector)
        for number, count in enumerate(wish.counts)
    ]
    more = {"constraints": [{"matchAttribute": wish.match}]} if wish.match else {}
    return _object("ResourceClaim", name, namespace=NAMESPACE, spec=claim_spec(requests, **more))


def allocated_claim(name: str, node: str, devices: Sequence[str]) -> RawObject:
    """A claim that holds devices of a node."""
    held = allocation([(node, device) for device in devices], request="request-0", at=node)
    return pending_claim(Wish(), name) | {"status": {"allocation": held}}


def waiting_pod(name: str, claim: str = "") -> RawObject:
    """A pod as the API server and a scheduler have it, with a claim or with none."""
    container: RawObject = {
        "name": "main",
        "image": "registry.example.com/image:1",
        "command": ["run", "--with", "options"],
        "env": [{"name": f"VARIABLE_{index}", "value": "value"} for index in range(10)],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run/secrets", "readOnly": True}],
    }
    token = {"serviceAccountToken": {"path": "token"}}
    spec: RawObject = {
        "schedulerName": "dra-scheduler",
        "containers": [container],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        "volumes": [{"name": "kube-api-access", "projected": {"sources": [token]}}],
    }
    if claim:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
        container["resources"]["claims"] = [{"name": "gpu"}]
    metadata = {"uid": f"uid-{name}", "labels": {"app": "example"}}
    return api_object("Pod", name, namespace=NAMESPACE, metadata=metadata, spec=spec, status={"phase": "Pending"})


def _node(name: str) -> RawObject:
    return _object("Node", name, metadata={"labels": {"kubernetes.io/hostname": name}})


def _slices(node: str, machine: Machine) -> Iterator[RawObject]:
    counters = [_counter_set(gpu) for gpu in range(machine.gpus)] if machine.partitioned else []
    devices = [each for gpu in range(machine.gpus) for each in _devices(node, gpu, machine)]
    spec = slice_spec(node, devices, slices=2 if counters else 1, nodeName=node)
    yield _object("ResourceSlice", f"{node}-devices", spec=spec)
    if counters:
        without = {name: value for name, value in spec.items() if name != "devices"}
        yield _object("ResourceSlice", f"{node}-counters", spec=without | {"sharedCounters": counters})


def _devices(node: str, gpu: int, machine: Machine) -> Iterator[RawObject]:
    uuid = f"GPU-{node}-{gpu:02d}"
    root = f"pci0000:{gpu * machine.roots // machine.gpus:02x}"
    if not machine.partitioned:
        yield _device(f"gpu-{gpu}", uuid, root, "80Gi", profile="whole")
        return
    yield _device(f"gpu-{gpu}", uuid, root, "70Gi", profile="whole") | _consumes(gpu, _PARTS)
    for part in range(_PARTS):
        yield _device(f"gpu-{gpu}-{part}", f"{uuid}-{part}", root, "10Gi", profile="1g.10gb") | _consumes(gpu, 1)


def _device(name: str, uuid: str, root: str, memory: str, *, profile: str) -> RawObject:
    texts = {"uuid": uuid, "model": "a100", "profile": profile, ROOT: root}
    attributes: RawObject = {key: {"string": value} for key, value in texts.items()}
    attributes["driverVersion"] = {"version": "550.54.15"}
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}}


def _counter_set(gpu: int) -> RawObject:
    return {"name": f"gpu-{gpu}", "counters": {"parts": {"value": str(_PARTS)}}}


def _consumes(gpu: int, parts: int) -> RawObject:
    return {"consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": {"parts": {"value": str(parts)}}}]}


def _object(kind: str, name: str, *, metadata: RawObject | None = None, **fields: Any) -> RawObject:
    stored = {"uid": f"uid-{kind}-{name}", "resourceVersion": "1", **(metadata or {})}
    return api_object(kind, name, metadata=stored, **fields)
