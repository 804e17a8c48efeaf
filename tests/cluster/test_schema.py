"""The table of fields has what a real API server publishes; what we refuse, its strict decoding refuses."""

import json
from copy import deepcopy
from typing import Any

import pytest

from allocator.model.validation import schema_problems
from extender.kube.resources import CLAIMS, CLASSES, NODES, PODS, SLICES, Resource
from tests.cluster.claim_rules import refusal_of
from tests.conformance.schema import KINDS, TABLE, table_of
from tests.kit.controlplane.client import Client
from tests.kit.objects.manifests import as_version, claim, device_class, pod, resource_slice
from tests.kit.objects.parts import api_object


@pytest.mark.every_version
async def test_every_field_that_the_server_publishes_is_in_the_table(client: Client) -> None:
    paths = {version: f"apis/{version}" if "/" in version else f"api/{version}" for version in KINDS}
    served = (await client.read("/openapi/v3"))["paths"]
    published = table_of([await client.read(f"/openapi/v3/{path}") for path in paths.values() if path in served])
    ours = json.loads(TABLE.read_text())
    assert published.kinds.items() <= ours["kinds"].items()
    assert {
        name: fields for name, fields in published.types.items() if not fields.items() <= ours["types"][name].items()
    } == {}


def with_field(obj: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with one more field; a path such as ``spec.devices.0.cout``."""
    copy = deepcopy(obj)
    *outer, last = path.split(".")
    place: Any = copy
    for step in outer:
        place = place[int(step)] if isinstance(place, list) else place[step]
    place[last] = value
    return copy


CASES: tuple[tuple[Resource, dict[str, Any], str, object], ...] = (
    (CLASSES, device_class(), "spec.selector", []),
    (CLASSES, device_class(), "spec.selectors.0.cel.Expression", "true"),
    (CLASSES, device_class(), "metadata.label", {}),
    (CLASSES, device_class(), "metadata.labels", {"a": 1}),
    (CLASSES, device_class(), "metadata.creationTimestamp", "today"),
    (CLASSES, device_class(), "zebra", None),
    (CLAIMS, claim("default", "c"), "spec.devices.requests.0.exactly.cout", 4),
    (CLAIMS, claim("default", "c"), "spec.devices.requests.0.exactly.count", "4"),
    (CLAIMS, claim("default", "c"), "spec.devices.requests.0.count", 4),
    (CLAIMS, claim("default", "c"), "spec.devices.requests.0.exactly.capacity", {"requests": {"memory": "1Gx"}}),
    (CLAIMS, as_version(claim("default", "c"), "v1beta1"), "spec.devices.requests.0.exactly", {}),
    (SLICES, resource_slice("s", "n", [{"name": "gpu-0"}]), "spec.devices.0.basic", {}),
    (NODES, api_object("Node", "n"), "spec", {"taints": [{"key": "a", "efect": "NoSchedule"}]}),
    (PODS, pod("default", "p"), "spec.containers.0.nodeSelector", {}),
    (PODS, pod("default", "p"), "spec.containers.0.resources.limits", {"cpu": []}),
    (PODS, pod("default", "p"), "spec.priority", "high"),
    (PODS, pod("default", "p"), "spec.containers.0.ports", [{"containerPort": 2**31}]),
)


@pytest.mark.parametrize(("resource", "obj", "path", "value"), CASES, ids=[f"{r.kind} {p}" for r, _, p, _ in CASES])
async def test_the_server_refuses_what_we_refuse(
    client: Client, resource: Resource, obj: dict[str, Any], path: str, value: object
) -> None:
    speaking = client.speaking(obj["apiVersion"].rpartition("/")[2]) if resource.group else client
    assert schema_problems(obj) == ()
    wrong = with_field(obj, path, value)
    (problem,) = schema_problems(wrong)
    refusal = await refusal_of(speaking.try_to_create(resource, wrong))
    assert (refusal.status, refusal.reason) == (400, "BadRequest")
    if problem.message.startswith("unknown field"):
        assert f'strict decoding error: unknown field "{problem.path}"' in refusal.message
