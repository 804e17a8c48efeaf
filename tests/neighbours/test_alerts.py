"""Each alert fires when it should, and does not otherwise: alerts.yaml, in promtool's own format.

Without promtool, the cases are only compared with the alerts that there are.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.kit.places import ROOT
from tests.neighbours.promtool import promtool

CASES: Final = Path(__file__).with_name("alerts.yaml")
GROUPS: Final[Any] = yaml.safe_load((ROOT / "deploy/monitoring/prometheus-rule.yaml").read_text())["spec"]["groups"]
RULES: Final[dict[str, Any]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
ASKED: Final[list[Any]] = [
    asked for test in yaml.safe_load(CASES.read_text())["tests"] for asked in test["alert_rule_test"]
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The cases, and the rules as Prometheus reads them: without the object around them."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": GROUPS}))
    shutil.copy(CASES, tmp_path)
    return tmp_path


def test_prometheus_reads_the_rules(folder: Path) -> None:
    printed = promtool("check", "rules", "--lint=all", "--lint-fatal", folder / "rules.yaml")
    assert f"SUCCESS: {len(RULES)} rules found" in map(str.strip, printed)


def test_each_alert_fires_in_its_cases_and_in_no_other(folder: Path) -> None:
    printed = promtool("test", "rules", folder / CASES.name)
    assert "SUCCESS" in map(str.strip, printed)


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires = {asked["alertname"] for asked in ASKED if asked["exp_alerts"]}
    quiet = {asked["alertname"] for asked in ASKED if not asked["exp_alerts"]}
    assert (fires, quiet) == ({*RULES}, {*RULES})


def filled(template: str, labels: Mapping[str, str]) -> str:
    """The text of an alert, with a gap for its value."""
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda gap: labels[gap[1]], template)


@pytest.mark.parametrize("asked", [asked for asked in ASKED if asked["exp_alerts"]], ids=lambda each: each["alertname"])
def test_the_cases_have_the_texts_of_the_rules(asked: Any) -> None:
    rule = RULES[asked["alertname"]]
    for alert in asked["exp_alerts"]:
        labels, texts = alert["exp_labels"], alert["exp_annotations"]
        assert labels["severity"] == rule["labels"]["severity"]
        assert texts.keys() == rule["annotations"].keys()
        for name, template in rule["annotations"].items():
            before, _, after = filled(template, labels).partition("{{ $value }}")
            assert texts[name].startswith(before)
            assert texts[name].endswith(after)
