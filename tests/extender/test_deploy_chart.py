"""The chart, as far as that is known without Helm; `tests/cluster/test_chart.py` asks Helm."""

import re

import pytest
import yaml

from extender.cluster.objects.extended_resources import MARKER
from extender.config.sources import load
from extender.tools.version import __version__
from tests.extender.deployed import CHART, DEPLOY, SCHEDULER_CONFIG, documents, only, variables
from tests.house.chart import PAGE, SOURCES, page, schema, values
from tests.kit.places import ROOT


@pytest.mark.parametrize("name", SOURCES)
def test_a_file_of_the_chart_is_the_one_that_kustomize_uses(name: str) -> None:
    """After a change: make chart."""
    assert (CHART / "files" / name).read_bytes() == (ROOT / SOURCES[name]).read_bytes()


def test_the_chart_has_no_other_files_and_no_links() -> None:
    """Helm warns about links."""
    assert {each.name for each in (CHART / "files").iterdir()} == SOURCES.keys()
    assert [each for each in CHART.rglob("*") if each.is_symlink()] == []


def test_each_file_of_the_chart_has_a_template() -> None:
    templates = "\n".join(path.read_text() for path in (CHART / "templates").iterdir())
    by_name = {name for name in re.findall(r"files/([\w.-]+)", templates) if "%" not in name}
    assert SOURCES.keys() - by_name == {name for name in SOURCES if SOURCES[name].startswith("deploy/crds/")}


def test_the_page_has_every_value_of_the_chart() -> None:
    """After a change: make chart."""
    assert PAGE.read_text() == page()


def properties(of: dict[str, object], at: str = "") -> set[str]:
    found = set()
    nested = of.get("properties")
    for name, each in (nested if isinstance(nested, dict) else {}).items():
        found |= {f"{at}{name}"} | (properties(each, f"{at}{name}.") if "properties" in each else set())
    return found


def paths(of: object, known: set[str], at: str = "") -> set[str]:
    """The paths of values, down to those that the schema names no fields of."""
    if not isinstance(of, dict):
        return set()
    return {f"{at}{name}" for name in of} | {
        path
        for name, each in of.items()
        if any(other.startswith(f"{at}{name}.") for other in known)
        for path in paths(each, known, f"{at}{name}.")
    }


def test_the_schema_has_the_values_that_there_are_and_no_others() -> None:
    known = {path for path in properties(schema()) if not path.startswith(("global", "affinity."))}
    assert paths(values(), known) == known


def test_the_component_makes_it_the_only_scheduler() -> None:
    folder = DEPLOY / "only-scheduler"
    (scheduler,) = documents(folder / "scheduler.yaml")
    profiles = sorted(each["schedulerName"] for each in scheduler["profiles"])
    for container in only(folder / "deployment.yaml", "Deployment")["spec"]["template"]["spec"]["initContainers"]:
        scheduling = load(environment=variables(container)).scheduling
        assert (scheduling.marked_pods_only, sorted(scheduling.scheduler_names)) == (True, profiles)


def test_both_policies_are_about_the_same_pods_and_the_profiles_of_the_scheduler() -> None:
    folder = DEPLOY / "only-scheduler"
    mutating, _, validating, _ = documents(folder / "policies.yaml")
    for field in ("matchConstraints", "matchConditions", "failurePolicy"):
        assert mutating["spec"][field] == validating["spec"][field]
    is_marked = next(each for each in mutating["spec"]["variables"] if each["name"] == "isMarked")
    assert [each["expression"] for each in validating["spec"]["validations"]] == [is_marked["expression"]]
    (scheduler,) = documents(folder / "scheduler.yaml")
    of_ours = mutating["spec"]["matchConditions"][0]["expression"]
    assert all(f'"{each["schedulerName"]}"' in of_ours for each in scheduler["profiles"])
    (managed,) = scheduler["extenders"][0]["managedResources"]
    assert managed == {"name": MARKER, "ignoredByScheduler": True}


def test_the_only_scheduler_differs_from_the_other_one_in_what_it_has_to() -> None:
    (scheduler,) = documents(DEPLOY / "only-scheduler" / "scheduler.yaml")
    lease = scheduler["leaderElection"].pop("resourceName")
    scheduler["extenders"][0].pop("managedResources")
    plain, with_devices = scheduler.pop("profiles")
    assert (lease, plain["schedulerName"]) == ("kube-scheduler", "default-scheduler")
    assert with_devices == SCHEDULER_CONFIG["profiles"][0]
    assert plain["plugins"] == with_devices["plugins"]
    shipped = {name: value for name, value in SCHEDULER_CONFIG.items() if name != "profiles"}
    of_lease = {**shipped["leaderElection"]}
    del of_lease["resourceName"]
    assert scheduler == {**shipped, "leaderElection": of_lease}


def test_the_charts_version_is_ours() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_kustomizations_name_the_image_of_this_version() -> None:
    for folder in (DEPLOY, DEPLOY / "node", DEPLOY / "mock-driver"):
        images = yaml.safe_load((folder / "kustomization.yaml").read_text())["images"]
        assert [each["newTag"] for each in images if each["name"] == "dra-extender"] == [__version__]
