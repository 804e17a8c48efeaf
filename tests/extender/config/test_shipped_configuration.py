"""config/scheduler.yaml and config/extender.yaml: complete, and in agreement with each other and with the service."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.config.settings import Settings
from extender.config.sources import keys, load
from extender.faces.http.endpoints.scheduler_verbs import VERBS

CONFIG = Path(__file__).parents[3] / "config"
SETTINGS = load((CONFIG / "extender.yaml").read_text())
SCHEDULER: dict[str, Any] = yaml.safe_load((CONFIG / "scheduler.yaml").read_text())
EXTENDER: dict[str, Any] = SCHEDULER["extenders"][0]
PROFILE: dict[str, Any] = SCHEDULER["profiles"][0]


def test_the_file_shows_the_defaults() -> None:
    assert Settings() == SETTINGS


@pytest.mark.parametrize("path", [path for path, _ in keys()], ids=".".join)
def test_the_file_shows_every_setting(path: tuple[str, ...]) -> None:
    tree = yaml.safe_load((CONFIG / "extender.yaml").read_text())
    for part in path:
        assert part in tree
        tree = tree[part]


def test_the_scheduler_calls_where_the_service_listens() -> None:
    server = SETTINGS.server
    assert EXTENDER["urlPrefix"] == f"http://{server.host}:{server.port}{server.prefix}"


def test_the_scheduler_calls_the_verbs_that_there_are() -> None:
    names = {verb.name for verb in VERBS}
    assert {EXTENDER[f"{name}Verb"] for name in names} == names


def test_the_scheduler_waits_longer_than_the_service_works() -> None:
    assert float(EXTENDER["httpTimeout"].removesuffix("s")) > SETTINGS.scheduling.deadline_seconds


def test_one_scheduler_owns_the_devices() -> None:
    assert PROFILE["schedulerName"] == "dra-scheduler"
    assert PROFILE["plugins"]["multiPoint"]["disabled"] == [{"name": "DynamicResources"}]
    assert PROFILE["plugins"]["preEnqueue"] == {"enabled": [{"name": "DynamicResources"}]}
    assert PROFILE["percentageOfNodesToScore"] == 100
    assert (EXTENDER["ignorable"], EXTENDER["nodeCacheCapable"]) == (False, True)
    assert "managedResources" not in EXTENDER
