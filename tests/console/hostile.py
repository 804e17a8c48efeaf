"""A cluster whose texts are markup and control characters, wherever the API takes free text."""

from pathlib import Path
from typing import Any, Final

import yaml

from tests.kit.clusters import DRIVER, device_class, local_slice, node

MARKUP: Final = "<img src=x onerror=pwned=1>"
UNSEEN: Final = "a\u202eb\x1b[31mc"
"""Turns the direction of the text, and colors a terminal."""

SHOWN: Final = "a\\u202eb\\x1b[31mc"


def hostile_manifest(folder: Path) -> Path:
    """A file with nodes, devices, and pods that fit nowhere."""
    found = local_slice("a", devices=2)
    for device, value in zip(found["spec"]["devices"], (MARKUP, UNSEEN), strict=True):
        device["attributes"] = {"model": {"string": value}}
    found["spec"]["devices"][1]["taints"] = [{"key": "broken", "value": "yes", "effect": "NoSchedule"}]
    path = folder / "hostile.yaml"
    objects = [node("a"), found, device_class(DRIVER), *_pod("markup", MARKUP), *_pod("unseen", UNSEEN)]
    path.write_text(yaml.safe_dump_all(objects, allow_unicode=True))
    return path


def _pod(name: str, text: str) -> list[dict[str, Any]]:
    """A pod that asks for a device with a text, and the claim that says so."""
    quoted = text.replace("\x1b", "\\x1b").replace('"', '\\"')
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].model == "{quoted}!"'}}
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "selectors": [selector]}}
    about = {"name": name, "namespace": "ns"}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": about,
            "spec": {"devices": {"requests": [request]}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**about, "annotations": {"example.com/note": text}},
            "spec": {
                "schedulerName": text if text == MARKUP else "dra-scheduler",
                "containers": [{"name": "main", "image": "example.com/app"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            },
        },
    ]
