"""Defragment, in the browser: the proposals of the service, the commands to copy, and what the form asks for."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from playwright.sync_api import expect

from tests.console.browser import Console
from tests.console.service import Served, over_manifests
from tests.kit.places import ROOT

Open = Callable[..., Console]

COMMANDS = ["kubectl cordon gpu-1", "kubectl delete pod --namespace demo web-0", "kubectl uncordon gpu-1"]


def with_pods(manifest: Any) -> Iterator[Any]:
    """The object itself; of a workload, its pods: a service makes none."""
    if manifest["kind"] != "StatefulSet":
        yield manifest
        return
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "uid-web", "controller": True}
    for number in range(manifest["spec"]["replicas"]):
        metadata = {"name": f"web-{number}", "namespace": "demo", "ownerReferences": [owner]}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": manifest["spec"]["template"]["spec"]}


@pytest.fixture(scope="module")
def fragmented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two GPUs are free on each of two nodes, and a pod waits for three."""
    folder = tmp_path_factory.mktemp("fragmented")
    manifests = yaml.safe_load_all((ROOT / "config" / "fragmented.yaml").read_text())
    objects = folder / "objects.yaml"
    objects.write_text(yaml.safe_dump_all(each for found in manifests for each in with_pods(found)))
    with over_manifests(folder, objects) as served:
        for name, node in (("web-0", "gpu-1"), ("web-1", "gpu-2"), ("web-2", "gpu-1"), ("notebook", "gpu-2")):
            served.bind("demo", name, node)
        yield served


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_the_view_is_accessible(console: Open, fragmented: Served, width: int, scheme: str) -> None:
    page = console(fragmented, "#/defragment", width=width, scheme=scheme)
    page.one(".card.proposal").wait_for()
    assert page.violations() == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_proposal_has_its_moves_and_the_commands_to_copy(console: Open, fragmented: Served) -> None:
    page = console(fragmented, "#/defragment")
    expect(page.one(".verdict")).to_have_text("Moves would give 1 pod its devices.")
    card = page.one(".card.proposal")
    expect(card.locator("h3")).to_contain_text("demo/training gpus: 3 gpu.example.com")
    expect(card.locator("li")).to_have_text(
        "demo/web-0 moves from gpu-1 to gpu-2 priority 0, made again by StatefulSet web"
    )
    assert card.locator("code").inner_text().splitlines() == COMMANDS
    card.locator("button.copy").click()
    expect(card.locator("button.copy")).to_have_text("Copied")
    expect(page.one(".part").filter(has_text="Not moved")).to_contain_text(
        "no controller makes it again: pod demo/notebook"
    )


def test_the_form_asks_about_one_pod_and_the_address_says_so(console: Open, fragmented: Served) -> None:
    page = console(fragmented, "#/defragment")
    page.one(".card.proposal").wait_for()
    page.one("input[name=pod]").fill("demo/training")
    page.one("input[name=moves]").fill("5")
    page.one("input[name=moves]").press("Enter")
    expect(page.one(".card.proposal h3")).to_contain_text("demo/training")
    assert page.page.evaluate("location.hash") == "#/defragment?pod=demo%2Ftraining&moves=5"


def test_a_pod_that_does_not_wait_is_told(console: Open, fragmented: Served) -> None:
    page = console(fragmented, "#/defragment?pod=demo%2Fnotebook")
    expect(page.one("[role=alert]")).to_contain_text("pod demo/notebook is not pending: its node is gpu-2")
    page.problems.clear()  # Chromium logs each answer with status 400
