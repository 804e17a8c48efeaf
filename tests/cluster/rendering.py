"""What Helm and kustomize make of deploy/."""

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import yaml

from extender.kube.api import RawObject
from tests.kit.controlplane.binaries import RELEASES
from tests.kit.places import ROOT

CHART: Final = ROOT / "deploy" / "chart"
NEWEST: Final = RELEASES[max(RELEASES)].version
"""The version of Kubernetes that kustomize's scheduler has."""

Values: TypeAlias = Mapping[str, Any]


def helm_says(
    helm: Path, values: Values | None = None, *, namespace: str = "kube-system", version: str = NEWEST
) -> tuple[int, str, str]:
    """The status of `helm template`, what it prints, and its messages."""
    return run_helm(
        helm, "template", "any-name", str(CHART), "--kube-version", version, values=values, namespace=namespace
    )


def run_helm(
    helm: Path, *command: str, values: Values | None = None, namespace: str, kubeconfig: Path = Path("/nowhere")
) -> tuple[int, str, str]:
    """The status of a command of Helm, what it prints, and its messages."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "values.yaml"
        file.write_text(yaml.safe_dump(dict(values or {})))
        more = () if values is None else ("--values", str(file))
        done = subprocess.run(
            [helm, *command, "--namespace", namespace, *more],
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": folder, "KUBECONFIG": str(kubeconfig)},
        )
    return done.returncode, done.stdout, done.stderr


def chart(helm: Path, values: Values | None = None, **options: Any) -> list[RawObject]:
    """The objects of the chart; Helm has nothing to say about it."""
    status, text, messages = helm_says(helm, values, **options)
    assert (status, messages) == (0, ""), messages
    return documents(text)


@cache
def _kustomized(renderer: Path, folder: Path) -> str:
    done = subprocess.run([renderer, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kustomization(renderer: Path, folder: Path) -> list[RawObject]:
    """The objects of a kustomization."""
    return documents(_kustomized(renderer, folder))


def documents(text: str) -> list[RawObject]:
    return [each for each in yaml.safe_load_all(text) if each]


def deployment_of(objects: list[RawObject]) -> Any:
    (found,) = (each for each in objects if each["kind"] == "Deployment")
    return found
