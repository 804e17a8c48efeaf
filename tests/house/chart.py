"""Brings the chart up to date: ``python -m tests.house.chart`` copies its files, and writes the page about its values.

Helm warns about symbolic links, and packs no file outside of the chart, so the chart has copies of what kustomize uses.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from tests.kit.places import ROOT

CHART: Final = ROOT / "deploy" / "chart"
PAGE: Final = ROOT / "docs" / "reference" / "chart-values.md"
SOURCES: Final[Mapping[str, str]] = {
    "api-rbac.yaml": "deploy/api/rbac.yaml",
    "api-service.yaml": "deploy/api/service.yaml",
    "dashboard.json": "deploy/monitoring/dashboard.json",
    "extender.yaml": "config/extender.yaml",
    "node-classes.yaml": "deploy/node/classes.yaml",
    "node-policy.yaml": "deploy/node/policy.yaml",
    "node-rbac.yaml": "deploy/node/rbac.yaml",
    "only-scheduler-policies.yaml": "deploy/only-scheduler/policies.yaml",
    "only-scheduler.yaml": "deploy/only-scheduler/scheduler.yaml",
    "pod-monitor.yaml": "deploy/monitoring/pod-monitor.yaml",
    "prometheus-rule.yaml": "deploy/monitoring/prometheus-rule.yaml",
    "rbac-scheduler.yaml": "deploy/rbac-scheduler.yaml",
    "rbac.yaml": "deploy/rbac.yaml",
    "rights-extended-resources.yaml": "deploy/rights/extended-resources.yaml",
    "rights-kueue.yaml": "deploy/kueue/rights.yaml",
    "rights-preemption.yaml": "deploy/rights/preemption.yaml",
    "rights-scheduling-gates.yaml": "deploy/scheduling-gates/rights.yaml",
    "scheduler.yaml": "config/scheduler.yaml",
    "scheduling-gates-policies.yaml": "deploy/scheduling-gates/policies.yaml",
    "service-monitor.yaml": "deploy/monitoring/service-monitor.yaml",
    "service.yaml": "deploy/service.yaml",
    **{
        name: f"deploy/crds/{name}"
        for kind in ("devicequotas", "podschedulingcontexts", "resourceclasses")
        for name in (f"{kind}.yaml", f"{kind}-rights.yaml")
    },
}
"""The files of the chart, and where they come from."""

_HEAD: Final = """\
# Values of the chart

Every value of [deploy/chart](../../deploy/chart), with its default. [values.yaml](../../deploy/chart/values.yaml) says
more about some of them. Helm refuses a value that is not here, and names it.
`make chart` writes this page from the schema of the values: change the schema, not this page.

| value | default | what it is |
|---|---|---|
"""
_LONGEST: Final = 60


def leaves(schema: Mapping[str, Any], values: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, str, str]]:
    """Path, default and description of each value that has one."""
    for name, each in schema["properties"].items():
        if name not in values:
            continue
        path, value = f"{at}{name}", values[name]
        if each.get("properties") and each.get("description") and isinstance(value, dict) and value:
            yield path, "", each["description"]
            yield from leaves(each, value, f"{path}.")
        else:
            text = json.dumps(value, ensure_ascii=False)
            yield path, f"`{text}`" if len(text) <= _LONGEST else "values.yaml has it", each["description"]


def schema() -> Any:
    """The schema of the values."""
    return json.loads((CHART / "values.schema.json").read_text())


def values() -> Any:
    """The values of the chart."""
    return yaml.safe_load((CHART / "values.yaml").read_text())


def page() -> str:
    """The page, in Markdown."""
    rows = leaves(schema(), values())
    return _HEAD + "".join(f"| `{path}` | {default} | {told} |\n" for path, default, told in rows)


def main() -> None:
    """Copy the files, and write the page."""
    for name, source in SOURCES.items():
        (CHART / "files" / name).write_bytes((ROOT / source).read_bytes())
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
