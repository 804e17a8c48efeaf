"""Writes the table of the fields that objects of Kubernetes have: ``python -m tests.conformance.schema``.

`allocator.model.validation.schema` reads the table. Its source is the OpenAPI that Kubernetes publishes with each
release; Go fetches the releases as modules. The table has each field that any of these releases has.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.kit.objects.openapi import FieldTable, field_table
from tests.kit.places import ROOT

RELEASES: Final = ("v1.36.3", "v1.37.2")
TABLE: Final = ROOT / "allocator" / "model" / "validation" / "fields.json"

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    **{f"scheduling.k8s.io/{version}": ("PodGroup",) for version in ("v1beta1", "v1alpha3", "v1alpha2")},
    "scheduling.k8s.io/v1": ("PriorityClass",),
    "v1": ("Namespace", "Node", "Pod", "ResourceQuota"),
    "apps/v1": ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
    "batch/v1": ("CronJob", "Job"),
    "policy/v1": ("PodDisruptionBudget",),
} | {
    f"resource.k8s.io/{version}": (
        "DeviceClass",
        "DeviceTaintRule",
        "ResourceClaim",
        "ResourceClaimTemplate",
        "ResourcePoolStatusRequest",
        "ResourceSlice",
    )
    for version in ("v1", "v1beta2", "v1beta1", "v1alpha3")
}
"""By API version: what commands read from manifests, what makes pods, and all kinds of resource.k8s.io."""


def table_of(documents: Iterable[Mapping[str, Any]]) -> FieldTable:
    """The fields of `KINDS` in OpenAPI documents."""
    return field_table(documents, [(version, kind) for version, kinds in KINDS.items() for kind in kinds])


def published(release: str, versions: Iterable[str] = KINDS) -> Iterator[Mapping[str, Any]]:
    """The OpenAPI documents of a release, for those of the API versions that it has."""
    command = ("go", "mod", "download", "-json", f"k8s.io/kubernetes@{release}")
    folder = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["Dir"]
    for version in versions:
        name = f"apis__{version.replace('/', '__')}" if "/" in version else f"api__{version}"
        path = Path(folder) / "api" / "openapi-spec" / "v3" / f"{name}_openapi.json"
        if path.exists():
            yield json.loads(path.read_text())


def written(table: FieldTable) -> str:
    """The text of the table: a line for each kind and each type."""
    kinds = ",\n".join(f"  {json.dumps(kind)}: {json.dumps(table.kinds[kind])}" for kind in sorted(table.kinds))
    types = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(dict(sorted(table.types[name].items())))}" for name in sorted(table.types)
    )
    return f'{{"kinds": {{\n{kinds}\n}}, "types": {{\n{types}\n}}}}\n'


def main() -> None:
    """Write the table."""
    table = table_of(document for release in RELEASES for document in published(release))
    TABLE.write_text(written(table))
    sys.stdout.write(f"{TABLE}: {len(table.kinds)} kinds, {len(table.types)} types of {', '.join(RELEASES)}\n")


if __name__ == "__main__":
    main()
