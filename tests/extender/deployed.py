"""The files of deploy/."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from extender.config.sources import load
from tests.kit.places import ROOT

DEPLOY = ROOT / "deploy"


def documents(path: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def only(path: Path, kind: str) -> Any:
    (found,) = (each for each in documents(path) if each["kind"] == kind)
    return found


DEPLOYMENT = only(DEPLOY / "deployment.yaml", "Deployment")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONFIG_CHECK, EXTENDER), (SCHEDULER,) = POD["initContainers"], POD["containers"]
"""The containers: a check of the configuration, a sidecar and a scheduler."""

RIGHTS = (
    DEPLOY / "rbac.yaml",
    *sorted((DEPLOY / "rights").glob("*.yaml")),
    DEPLOY / "kueue" / "rights.yaml",
    DEPLOY / "scheduling-gates" / "rights.yaml",
    *sorted((DEPLOY / "crds").glob("*-rights.yaml")),
)
"""The rights of dra-extender with all features."""

SCHEDULER_CONFIG = yaml.safe_load((ROOT / "config" / "scheduler.yaml").read_text())
SETTINGS = load((ROOT / "config" / "extender.yaml").read_text())
CHART = DEPLOY / "chart"


def variables(container: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a container, as kubelet makes it; a field of the pod has its name as its value."""
    found: dict[str, str] = {}
    for each in container["env"]:
        value = each["value"] if "value" in each else each["valueFrom"]["fieldRef"]["fieldPath"].rpartition(".")[2]
        for name, known in found.items():
            value = value.replace(f"$({name})", known)
        found[each["name"]] = value
    return found
