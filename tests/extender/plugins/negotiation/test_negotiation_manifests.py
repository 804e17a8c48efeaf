"""Negotiated claims over manifests, which have their parameters, too: library, `simulate`, `explain` and `serve`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from httpx import AsyncClient
from typer.testing import CliRunner

from extender import Cluster, ManifestsError
from extender.answers.explain.explanation import Conclusion
from extender.config.settings import Settings
from extender.controllers import Responder, Store
from extender.faces.commands.main import app
from tests.extender.faces.serving.process import serving
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, negotiated_class
from tests.extender.plugins.negotiation.transport_scenes import NONE_LEFT, Licenses
from tests.kit.clusters import Object, asking, binding, claim, node, pod
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


OWN, OF_CLASS = parameters("Needs", namespace="ns"), parameters("Setup")


@pytest.fixture(name="licenses")
def _licenses() -> Licenses:
    return Licenses()


@pytest.fixture(name="settings")
def _settings(tmp_path: Path, licenses: Licenses) -> Iterator[Settings]:
    with answering(Responder(licenses, Store.open(tmp_path / "store.json"))) as url:
        told: dict[str, Any] = {"name": NAME, "url": url, "parameters": [NEEDS, SETUP]}
        yield Settings.model_validate({"controllers": [told]})


def test_controller_gets_objects_of_the_manifests(settings: Settings, licenses: Licenses) -> None:
    cluster = Cluster.from_objects(objects(OWN, OF_CLASS), settings=settings)
    assert [str(each.node) for each in cluster.schedule()] == ["n"]
    assert [each["object"] for each in licenses.parameters] == [OF_CLASS, OWN]
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


def test_explanation_has_what_the_controller_says(settings: Settings, licenses: Licenses) -> None:
    cluster = Cluster.from_objects(objects(OWN, OF_CLASS), settings=settings)
    assert cluster.explain("ns/p").verdict is Conclusion.FITS
    assert cluster.explain_claim("ns/p-c").verdict is Conclusion.FITS
    licenses.left = 0
    others = Cluster.from_objects(objects(OWN, OF_CLASS), settings=settings)
    assert f"controller {NAME}: {NONE_LEFT}" in str(others.explain("ns/p"))
    assert f"controller {NAME}: {NONE_LEFT}" in str(others.explain_claim("ns/p-c"))
    assert licenses.outside == {}


BY_CONTEXT = Settings.model_validate({"controllers": [{"name": NAME, "transport": "PodSchedulingContext"}]})


def test_what_a_class_says_to_assume_of_a_controller_that_cannot_be_asked() -> None:
    own = [node("n"), pod("p", "p-c"), claim("p-c", LICENSE)]
    known = Cluster.from_objects([negotiated_class(in_simulations="available"), *own], settings=BY_CONTEXT)
    assert known.explain("ns/p").verdict is Conclusion.FITS
    assert [each.node for each in known.schedule()] == ["n"]
    unknown = Cluster.from_objects([negotiated_class(), *own], settings=BY_CONTEXT)
    (placement,) = unknown.schedule()
    assert 'class license has no annotation dra-extender.dev/in-simulations: "available"' in placement.reason


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        (
            {"in_simulations": "maybe"},
            'metadata.annotations[dra-extender.dev/in-simulations]: "maybe" is not available',
        ),
        ({"in_simulations": "available", "controller": ""}, "controller"),
    ],
)
def test_a_wrong_assumption_is_an_error(annotations: dict[str, str], problem: str) -> None:
    with pytest.raises(ManifestsError, match=re.escape(problem)):
        Cluster.from_objects([negotiated_class(**{"controller": NAME, **annotations})])


def test_controller_is_asked_anew_once_a_pod_has_gone(settings: Settings) -> None:
    second = [pod("q", "q-c"), claim("q-c", LICENSE)]
    cluster = Cluster.from_objects(objects(OWN, OF_CLASS, *second), settings=settings)
    assert [each.node for each in cluster.schedule()] == ["n", ""]
    assert cluster.explain("ns/q").verdict is Conclusion.FITS_NOWHERE
    cluster.remove("Pod", "p", "ns")
    cluster.remove("ResourceClaim", "p-c", "ns")
    assert cluster.explain("ns/q").verdict is Conclusion.FITS
    assert [each.node for each in cluster.schedule()] == ["n"]


@pytest.fixture(name="files")
def _files(tmp_path: Path, settings: Settings) -> list[str]:
    """Arguments: manifests, and settings."""
    (manifests := tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects(OWN, OF_CLASS)))
    controllers = settings.model_dump(mode="json", by_alias=True)["controllers"]
    (config := tmp_path / "extender.yaml").write_text(yaml.safe_dump({"controllers": controllers}))
    return ["--manifests", str(manifests), "--config", str(config)]


def test_command_explains_with_what_the_controller_says(files: list[str], licenses: Licenses) -> None:
    licenses.refuses = ["n"]
    result = CliRunner().invoke(app, ["explain", "ns/p", *files])
    assert result.stdout == f"pod ns/p does not fit on node n: controller {NAME}: {NONE_LEFT}\n"
    result = CliRunner().invoke(app, ["explain", "ns/p", "--server", "http://127.0.0.1:1", *files[2:]])
    assert "--config: a running service (--server) has its own settings" in result.stderr


async def test_service_over_manifests_hands_parameters_to_the_controller(files: list[str], licenses: Licenses) -> None:
    async with serving(*files) as (_, url), AsyncClient(base_url=url) as client:
        reply = (await client.post("/filter", content=orjson.dumps(asking(pod("p", "p-c"), "n")))).json()
        assert reply["NodeNames"] == ["n"], reply
        assert (await client.post("/bind", content=orjson.dumps(binding("p", "n")))).json() == {}
    assert [each["object"] for each in licenses.parameters] == [OF_CLASS, OWN]
    assert list(licenses.outside.values()) == ["n"]
