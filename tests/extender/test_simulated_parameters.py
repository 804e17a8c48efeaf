"""Parameters of negotiated claims in `simulate` and the library: they are objects of the manifests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extender import Cluster
from extender.config.settings import Settings
from extender.driver import Responder, Store
from tests.extender.negotiation_scene import LICENSE, NAME, negotiated_class
from tests.extender.transport_scene import Licenses
from tests.kit.clusters import Object, claim, node, pod
from tests.kit.driver import answering

GROUP = "gpu.example.com"
NEEDS = {"apiVersion": f"{GROUP}/v1", "kind": "Needs", "resource": "needs"}
SETUP = {"apiVersion": f"{GROUP}/v1", "kind": "Setup", "resource": "setups", "namespaced": False}


def named(kind: str) -> str:
    return f'{{"apiGroup": "{GROUP}", "kind": "{kind}", "name": "small"}}'


def parameters(kind: str, **metadata: str) -> Object:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": "small", **metadata}, "memory": "2Gi"}


def objects(*more: Object) -> list[Object]:
    """A pod with a claim that names parameters, of a class that names others."""
    wanted = claim("p-c", LICENSE)
    wanted["metadata"]["annotations"] = {"dra-extender.dev/parameters-ref": named("Needs")}
    return [negotiated_class(parameters_ref=named("Setup")), node("n"), pod("p", "p-c"), wanted, *more]


@pytest.fixture(name="licenses")
def _licenses() -> Licenses:
    return Licenses()


@pytest.fixture(name="settings")
def _settings(tmp_path: Path, licenses: Licenses) -> Iterator[Settings]:
    with answering(Responder(licenses, Store.open(tmp_path / "store.json"))) as url:
        told: dict[str, Any] = {"name": NAME, "url": url, "parameters": [NEEDS, SETUP]}
        yield Settings.model_validate({"controllers": [told]})


def test_controller_gets_objects_of_the_manifests(settings: Settings, licenses: Licenses) -> None:
    own, of_class = parameters("Needs", namespace="ns"), parameters("Setup")
    cluster = Cluster.from_objects(objects(own, of_class), settings=settings)
    assert [str(each.node) for each in cluster.schedule()] == ["n"]
    assert [each["object"] for each in licenses.parameters] == [of_class, own]
    assert licenses.outside == {}
    assert cluster.skipped == ()


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ([parameters("Setup")], "Needs.gpu.example.com ns/small"),
        ([parameters("Setup"), parameters("Needs")], "Needs.gpu.example.com ns/small"),
        ([parameters("Needs", namespace="ns")], "Setup.gpu.example.com small"),
    ],
    ids=["not there", "in another namespace", "of the class"],
)
def test_missing_object_is_the_reason(settings: Settings, given: list[Object], missing: str) -> None:
    (placement,) = Cluster.from_objects(objects(*given), settings=settings).schedule()
    assert f"claim p-c: parameters {missing}: there is no such object" in str(placement)


def test_objects_of_kinds_that_no_controller_names_are_skipped(settings: Settings) -> None:
    cluster = Cluster.from_objects([parameters("Other", namespace="ns")], settings=settings)
    assert [str(each) for each in cluster.skipped] == ["Other ns/small"]
