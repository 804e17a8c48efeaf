"""The workloads of scheduler_perf, from its own files."""

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = "test/integration/scheduler_perf/dra"
"""Within Kubernetes' module. It and some folders below have a topic each."""

_CONFIG: Final = "performance-config.yaml"


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload.

    Attributes:
        package: whose test program has it.
        case: name of its test case.
        name: within the case.
        labels: of the case and its own.
        pods: that are measured; 0 if new ones come for a time (steady state), or none do.
    """

    package: str
    case: str
    name: str
    labels: frozenset[str]
    pods: int

    @property
    def title(self) -> str:
        """Its name among all."""
        return f"{self.case}/{self.name}"


def workloads(source: Path) -> Iterator[Workload]:
    """All workloads, topic by topic.

    Args:
        source: folder of Kubernetes' module.
    """
    for file in sorted((source / FOLDER).rglob(_CONFIG)):
        package = str(file.parent.relative_to(source))
        for case in yaml.safe_load(file.read_text()):
            yield from (_workload(package, case, each) for each in case["workloads"])


def selected(found: Sequence[Workload], patterns: Sequence[str], labels: Sequence[str]) -> list[Workload]:
    """Those whose title fits one of the patterns, as names of files do; without patterns, those with one of the labels.

    Raises:
        ValueError: a pattern fits nothing.
    """
    if not patterns:
        return [each for each in found if each.labels & set(labels)]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(each.title, pattern) for each in found):
            raise ValueError(f"no workload is called {pattern}")
    return [each for each in found if any(fnmatch.fnmatchcase(each.title, pattern) for pattern in patterns)]


def _workload(package: str, case: dict[str, Any], each: dict[str, Any]) -> Workload:
    labels = frozenset((*(case.get("labels") or ()), *(each.get("labels") or ())))
    params = each["params"]
    pods = 0 if params.get("steadyState") else params.get("measurePods", 0)
    return Workload(package, case["name"], each["name"], labels, pods)
