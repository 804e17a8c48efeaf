"""What tests of manifests share: two manifests, and what is said of a file with a text."""

from pathlib import Path
from textwrap import dedent

from extender.lab.manifests import FileReport, Loaded, load

CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: gpu
spec:
  selectors:
  - cel:
      expression: device.driver == "gpu.example.com"
"""
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: one
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu
        capacity:
          requests:
            memory: 1.5
            cores: 4
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return path


def loaded(folder: Path, text: str, name: str = "a.yaml") -> Loaded:
    return load([written(folder, name, text)])


def report(folder: Path, text: str, name: str = "a.yaml") -> FileReport:
    (only,) = loaded(folder, text, name).files
    return only


def problems(folder: Path, text: str, name: str = "a.yaml") -> list[str]:
    return [str(problem) for problem in report(folder, text, name).problems]
