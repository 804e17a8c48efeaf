"""Prometheus evaluates each query of the dashboard over what a service exports, and no panel is empty."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from prometheus_client.samples import Sample

from tests.extender.exported import families, scrapes
from tests.kit.places import ROOT
from tests.neighbours.promtool import promtool

PANELS: Final[list[Any]] = orjson.loads((ROOT / "deploy/monitoring/dashboard.json").read_bytes())["panels"]
TARGET: Final = {"job": "dra-extender", "namespace": "kube-system", "pod": "one", "instance": "10.0.0.1:8889"}
"""What Prometheus adds to each sample."""

MINUTES: Final = 10
INTERVAL: Final = "4m"
"""What Grafana writes for $__rate_interval if Prometheus scrapes each minute."""

CUMULATIVE: Final = frozenset({"counter", "histogram"})


def test_prometheus_finds_nothing_wrong_with_the_metrics() -> None:
    assert [promtool("check", "metrics", given=scrape) for scrape in scrapes()] == [[], []]


def series() -> Mapping[str, str]:
    """The samples as series of ten minutes, by name and labels: what counts goes on at an even rate, the rest stays."""
    found = {}
    for family in families():
        for sample in family.samples:
            labels = {**sample.labels, **TARGET}
            text = ",".join(f"{name}={orjson.dumps(value).decode()}" for name, value in sorted(labels.items()))
            found[f"{sample.name}{{{text}}}"] = values(family.type, sample)
    return found


def values(kind: str, sample: Sample) -> str:
    """Counters move also if they are 0 in the scrape."""
    if kind in CUMULATIVE:
        return f"0+{sample.value + 1:f}x{MINUTES}"
    return f"{sample.value:f}x{MINUTES}"


def queries(panel: Any) -> Sequence[str]:
    return [target["expr"].replace("$__rate_interval", INTERVAL) for target in panel["targets"]]


def drawn(query: str) -> str:
    """The query, without results that are no number: these are not drawn."""
    return f"(({query}) == ({query}))"


def test_no_panel_is_empty(tmp_path: Path) -> None:
    given = [{"series": name, "values": text} for name, text in series().items()]
    shown = [" or ".join(drawn(query) for query in queries(panel)) for panel in PANELS]
    cases = [{"expr": f"absent({each})", "eval_time": f"{MINUTES}m", "exp_samples": []} for each in shown]
    test = {"name": "dashboard", "interval": "1m", "input_series": given, "promql_expr_test": cases}
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}))
    assert len(cases) > 30
    assert "SUCCESS" in map(str.strip, promtool("test", "rules", file))
