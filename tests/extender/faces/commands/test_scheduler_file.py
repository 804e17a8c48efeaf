"""Checks of a kube-scheduler's configuration: unsafe allocations are errors, waits are warnings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from extender.answers.observe.scheduler_settings import check_scheduler
from extender.config.settings import Settings
from extender.config.sources import load
from extender.faces.commands.main import app
from tests.kit.places import CONFIG, ROOT

SHIPPED = CONFIG / "scheduler.yaml"
RUNNER = CliRunner()
Tree = dict[str, Any]
Edit = Callable[[Tree], object]


def edited(edit: Edit) -> str:
    config: Tree = yaml.safe_load(SHIPPED.read_text())
    edit(config)
    return yaml.safe_dump(config)


def profile(config: Tree) -> Tree:
    found: Tree = config["profiles"][0]
    return found


def extender(config: Tree) -> Tree:
    found: Tree = config["extenders"][0]
    return found


def found_in(edit: Edit, settings: Settings | None = None) -> list[tuple[str, bool]]:
    return [(each.field, each.is_error) for each in check_scheduler(edited(edit), settings or Settings())]


def test_nothing_is_wrong_with_the_file_that_we_ship() -> None:
    assert check_scheduler(SHIPPED.read_text(), Settings()) == ()


class TestTheOnlyScheduler:
    """deploy/only-scheduler: the scheduler asks about pods with the marker alone."""

    FILE = ROOT / "deploy" / "only-scheduler" / "scheduler.yaml"
    SETTINGS = load("scheduling: {schedulerNames: [dra-scheduler, default-scheduler], markedPodsOnly: true}")

    def found(self, edit: Edit, settings: Settings = SETTINGS) -> list[tuple[str, bool]]:
        config: Tree = yaml.safe_load(self.FILE.read_text())
        edit(config)
        return [(each.field, each.is_error) for each in check_scheduler(yaml.safe_dump(config), settings)]

    def test_nothing_is_wrong_with_the_file_that_we_ship(self) -> None:
        assert check_scheduler(self.FILE.read_text(), self.SETTINGS) == ()

    @pytest.mark.parametrize(
        ("edit", "findings"),
        [
            (
                lambda c: extender(c)["managedResources"][0].pop("ignoredByScheduler"),
                [("extenders[0].managedResources[0].ignoredByScheduler", True)],
            ),
            (
                lambda c: extender(c).update(managedResources=[{"name": "a/b"}]),
                [("extenders[0].managedResources", True)],
            ),
            (lambda c: extender(c)["managedResources"].append({"name": "a/b"}), []),
            (lambda c: extender(c).pop("managedResources"), [("extenders[0].managedResources", False)]),
            (
                lambda c: c["profiles"][1].pop("percentageOfNodesToScore"),
                [(f"profiles[{number}].percentageOfNodesToScore", False) for number in range(2)],
            ),
            (
                lambda c: c["profiles"][0]["plugins"].pop("multiPoint"),
                [("profiles[0].plugins.multiPoint.disabled", True)],
            ),
        ],
        ids=[
            *("the scheduler counts the marker", "another resource", "more resources", "all pods"),
            *("a part of the nodes", "the plugin for plain pods"),
        ],
    )
    def test_what_matters_is_checked(self, edit: Edit, findings: list[tuple[str, bool]]) -> None:
        assert self.found(edit) == findings

    def test_the_settings_have_to_say_so(self) -> None:
        settings = load("scheduling: {schedulerNames: [dra-scheduler, default-scheduler]}")
        fields = self.found(dict, settings)
        assert fields == [
            ("extenders[0].managedResources", False),
            ("profiles[0].percentageOfNodesToScore", False),
        ]


@pytest.mark.parametrize(
    ("edit", "field", "is_error"),
    [
        (lambda c: profile(c)["plugins"].pop("preEnqueue"), "profiles[0].plugins.preEnqueue.enabled", False),
        (lambda c: profile(c).pop("plugins"), "profiles[0].plugins.multiPoint.disabled", True),
        (lambda c: c.pop("profiles"), "profiles", True),
        (
            lambda c: profile(c)["plugins"].update(filter={"enabled": [{"name": "DynamicResources"}]}),
            "profiles[0].plugins.filter.enabled",
            True,
        ),
        (lambda c: profile(c).pop("percentageOfNodesToScore"), "profiles[0].percentageOfNodesToScore", False),
        (lambda c: c.pop("clientConnection"), "clientConnection.qps", False),
        (lambda c: c["clientConnection"].update(qps=199.5), "clientConnection.qps", False),
        (lambda c: c["clientConnection"].update(qps=0), "clientConnection.qps", False),
        (lambda c: c.update(podMaxBackoffSeconds=300), "podMaxBackoffSeconds", False),
        (lambda c: c.update(podInitialBackoffSeconds=30), "podInitialBackoffSeconds", False),
        (lambda c: c.pop("extenders"), "extenders", True),
        (lambda c: extender(c).pop("bindVerb"), "extenders[0].bindVerb", True),
        (lambda c: extender(c).pop("prioritizeVerb"), "extenders[0].prioritizeVerb", False),
        (lambda c: extender(c).update(ignorable=True), "extenders[0].ignorable", True),
        (lambda c: extender(c).update(managedResources=[{"name": "a/b"}]), "extenders[0].managedResources", True),
        (lambda c: extender(c).pop("nodeCacheCapable"), "extenders[0].nodeCacheCapable", False),
        (lambda c: extender(c).update(httpTimeout="3500ms"), "extenders[0].httpTimeout", False),
        (lambda c: extender(c).update(urlPrefix="http://127.0.0.1:1"), "extenders[0].urlPrefix", False),
        (
            lambda c: c["extenders"].append({"urlPrefix": "http://x:1"}) or extender(c).update(urlPrefix="http://y:[/"),
            "extenders",
            False,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_field_that_matters_is_checked(edit: Edit, field: str, is_error: bool) -> None:
    assert found_in(edit) == [(field, is_error)]


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: profile(c)["plugins"].update(multiPoint={"disabled": [{"name": "*"}]}),
        lambda c: extender(c).pop("httpTimeout"),
        lambda c: extender(c).update(httpTimeout="1m0.5s"),
        lambda c: c.update(percentageOfNodesToScore=profile(c).pop("percentageOfNodesToScore")),
        lambda c: c["extenders"].insert(0, {"urlPrefix": "http://other:80"}),
        lambda c: c["clientConnection"].update(qps=-1),
    ],
    ids=[
        *("all plugins disabled", "default timeout", "a long timeout", "percentage of all profiles"),
        *("another extender", "no limit on requests"),
    ],
)
def test_other_ways_to_write_the_same_are_right(edit: Edit) -> None:
    assert found_in(edit) == []


def test_port_path_and_deadline_are_those_of_the_settings() -> None:
    settings = load("{server: {port: 9000, prefix: /a}, scheduling: {deadlineSeconds: 5.0}}")
    assert (
        found_in(lambda c: extender(c).update(urlPrefix="http://127.0.0.1:9000/a/", httpTimeout="6s"), settings) == []
    )
    fields = [field for field, _ in found_in(dict, settings)]
    assert fields == ["extenders[0].urlPrefix", "extenders[0].httpTimeout"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("kind: Pod", "kind: 'Pod' is not KubeSchedulerConfiguration"), ("- a", "expected keys and values at the top")],
)
def test_another_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_scheduler(text, Settings())


class TestCommand:
    """`dra-extender config check --scheduler FILE`."""

    @pytest.mark.parametrize(
        ("text", "code", "said"),
        [
            (SHIPPED.read_text(), 0, ""),
            (
                edited(lambda c: profile(c)["plugins"].pop("preEnqueue")),
                0,
                "warning: {}: profiles[0].plugins.preEnqueue",
            ),
            (edited(lambda c: profile(c).pop("plugins")), 1, "error: {}: profiles[0].plugins.multiPoint.disabled: "),
            ("kind: Pod", 1, "error: {}: kind: 'Pod' is not KubeSchedulerConfiguration"),
        ],
        ids=["shipped", "slow", "unsafe", "another kind"],
    )
    def test_it_prints_what_is_wrong(self, tmp_path: Path, text: str, code: int, said: str) -> None:
        file = tmp_path / "scheduler.yaml"
        file.write_text(text)
        result = RUNNER.invoke(app, ["config", "check", "--scheduler", str(file)])
        assert result.exit_code == code
        assert result.stderr.startswith(said.format(file))
        assert bool(result.stderr) is bool(said)

    def test_a_file_that_is_not_there_is_named(self) -> None:
        result = RUNNER.invoke(app, ["config", "check", "--scheduler", "/nowhere"])
        assert (result.exit_code, result.stderr.strip()) == (
            2,
            "error: /nowhere: cannot be read: No such file or directory",
        )


def test_the_settings_name_the_schedulers_of_the_file() -> None:
    settings = load("scheduling: {schedulerNames: [dra-scheduler]}")
    assert found_in(dict, settings) == []
    assert found_in(lambda c: profile(c).update(schedulerName="gpu"), settings) == [
        ("profiles[0].schedulerName", False)
    ]
    assert found_in(lambda c: profile(c).pop("schedulerName"), settings) == [("profiles[0].schedulerName", False)]
