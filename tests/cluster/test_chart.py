"""The chart, as Helm renders it: what each value does, what is refused, and what Kubernetes says of the objects."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from extender.config.sources import load
from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import Resource
from tests.cluster.rendering import CHART, Values, chart, deployment_of, helm_says, run_helm
from tests.conformance.schema import published
from tests.extender.deployed import DEPLOY, SCHEDULER, SETTINGS, documents, variables
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.binaries import RELEASES
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.objects.openapi import problems_of

DEPLOYMENTS = Resource("Deployment", "deployments", "apps", ("v1",), namespaced=True)
SECRETS = Resource("Secret", "secrets", "", ("v1",), namespaced=True)

# --- what is refused -----------------------------------------------------------------------------------------

TYPOS: dict[str, Values] = {
    "'replica'": {"replica": 5},
    "'/images/extender'.*'repository'": {"images": {"extender": {"repository": "example.com/x"}}},
    "'/images/extender/digest'": {"images": {"extender": {"digest": "sha256:123"}}},
    "'/images/extender/pullPolicy'": {"images": {"extender": {"pullPolicy": "Sometimes"}}},
    "'/resources/extender'.*'request'": {"resources": {"extender": {"request": {"cpu": "1"}}}},
    "'/api'.*'enable'": {"api": {"enable": True}},
    "'/monitoring'": {"monitoring": True},
    "'/tolerations/0'.*'operators'": {"tolerations": [{"operators": "Exists"}]},
    "'/extraEnv/extender/0'.*'values'": {"extraEnv": {"extender": [{"name": "A", "values": "b"}]}},
    "'/networkPolicy/from/0'.*'namespaceSelectors'": {"networkPolicy": {"from": [{"namespaceSelectors": {}}]}},
    "'/disruptionBudget'.*'minAvailable'": {"disruptionBudget": {"minAvailable": 1}},
    "'/preemption'": {"preemption": "no"},
    "'/node'.*'reservedCPUs'": {"node": {"reservedCPUs": "0"}},
    "'/podLabels'": {"podLabels": {"app.kubernetes.io/name": "mine"}},
}


@pytest.mark.parametrize("words", TYPOS)
@pytest.mark.every_version
async def test_helm_installs_nothing_with_a_wrong_value_and_names_it(
    client: Client, plane: ControlPlane, helm: Path, namespace: str, words: str
) -> None:
    kubeconfig = plane.kubeconfig(ADMIN)
    values = TYPOS[words]
    status, text, message = run_helm(
        helm, "install", "devices", str(CHART), values=values, namespace=namespace, kubeconfig=kubeconfig
    )
    assert (status, text) == (1, "")
    assert re.search(words, message), message
    releases = [each["type"] for each in (await client.list(SECRETS, namespace)).items]
    assert "helm.sh/release.v1" not in releases


def test_an_older_kubernetes_is_refused(helm: Path) -> None:
    status, _, message = helm_says(helm, version="v1.31.9")
    assert status == 1
    assert "chart requires kubeVersion: >=1.32.0-0" in message


@pytest.mark.parametrize("name", ["schedulingGates", "onlyScheduler"])
def test_what_needs_a_newer_kubernetes_is_refused_by_its_value(helm: Path, name: str) -> None:
    values = {name: {"enabled": True}}
    status, _, message = helm_says(helm, values, version="v1.35.4-gke.100")
    assert status == 1
    assert f"{name}.enabled needs Kubernetes 1.36 or later, because of MutatingAdmissionPolicy" in message
    assert "this cluster has v1.35.4" in message
    assert helm_says(helm, values, version="v1.36.0")[0] == 0


# --- where it is installed -----------------------------------------------------------------------------------

ALL: Values = {
    "api": {"enabled": True},
    "expander": {"enabled": True, "anonymous": True},
    "node": {"enabled": True},
    "onlyScheduler": {"enabled": True},
    "schedulingGates": {"enabled": True},
    "admissionChecks": {"enabled": True},
    "monitoring": {"enabled": True},
    "deviceQuotas": True,
    "resourceClasses": True,
    "podSchedulingContexts": True,
}
FIXED = {
    ("Role", "dra-extender-lease"),
    ("RoleBinding", "dra-extender-lease"),
    ("Role", "dra-scheduler-lease"),
    ("RoleBinding", "dra-scheduler-lease"),
    ("RoleBinding", "dra-scheduler-authentication"),
}
"""What is about leases and a ConfigMap of kube-system, whatever the namespace of the release."""


def test_the_namespace_is_free(helm: Path) -> None:
    objects = chart(helm, ALL, namespace="devices")
    where = {(each["kind"], each["metadata"]["name"]): each["metadata"].get("namespace") for each in objects}
    assert {key for key, namespace in where.items() if namespace == "kube-system"} == FIXED
    assert set(where.values()) == {None, "kube-system", "devices", "monitoring"}
    subjects = [subject for each in objects for subject in each.get("subjects", ())]
    assert {each["namespace"] for each in subjects} == {"devices"}
    (monitor,) = (each for each in objects if each["kind"] == "ServiceMonitor")
    assert monitor["spec"]["namespaceSelector"]["matchNames"] == ["devices"]
    extender = deployment_of(objects)["spec"]["template"]["spec"]["initContainers"][1]
    assert load(environment=variables(extender)).peers.server_name == "dra-extender-api.devices.svc"
    (policy,) = (
        each
        for each in objects
        if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"] == "dra-extender-node"
    )
    assert "system:serviceaccount:devices:dra-extender-node" in policy["spec"]["matchConditions"][0]["expression"]


def test_the_name_of_the_release_changes_nothing(helm: Path) -> None:
    """An installation is for a cluster, so Helm refuses a second one: its objects are there already."""
    assert "any-name" not in orjson.dumps(chart(helm, ALL)).decode()


@pytest.mark.every_version
async def test_it_is_installed_upgraded_rolled_back_and_uninstalled(
    client: Client, plane: ControlPlane, helm: Path, namespace: str
) -> None:
    """By Helm itself, on a real API server: the notes have the next commands, and nothing is left at the end."""

    async def replicas() -> int | None:
        try:
            found = await client.get(DEPLOYMENTS, ObjectKey(namespace, "dra-extender"))
        except ApiError as error:
            return {404: None}[error.status]
        return int(found["spec"]["replicas"])

    def run(*command: str, values: Values | None = None) -> str:
        status, text, messages = run_helm(
            helm, *command, values=values, namespace=namespace, kubeconfig=plane.kubeconfig(ADMIN)
        )
        assert status == 0, messages
        return text

    notes = run("install", "devices", str(CHART), values={"node": {"enabled": True}}).partition("NOTES:")[2]
    assert f"kubectl --namespace {namespace} rollout status deployment/dra-extender" in notes
    assert "spec.schedulerName: dra-scheduler" in notes
    assert await replicas() == 2
    run("upgrade", "devices", str(CHART), values={"replicas": 3, "preemption": False})
    assert await replicas() == 3
    run("rollback", "devices", "1")
    assert await replicas() == 2
    run("uninstall", "devices")
    assert await replicas() is None


# --- what each value does ------------------------------------------------------------------------------------


def of(objects: list[Any], *kinds: str) -> list[Any]:
    return [each for each in objects if each["kind"] in kinds]


def pod_of(helm: Path, values: Values) -> Any:
    return deployment_of(chart(helm, values))["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("version", "tag"), [("v1.37.1", "v1.37.1"), ("v1.36.3+k3s1", "v1.36.3"), ("v1.35.2-gke.100", "v1.35.2")]
)
def test_the_scheduler_has_the_version_of_the_cluster(helm: Path, version: str, tag: str) -> None:
    (scheduler,) = deployment_of(chart(helm, version=version))["spec"]["template"]["spec"]["containers"]
    assert scheduler["image"] == f"registry.k8s.io/kube-scheduler:{tag}"


def test_an_image_is_named_by_its_digest_where_there_is_one(helm: Path) -> None:
    digest = f"sha256:{'0' * 64}"
    images = {name: {"name": name, "tag": "v1", "digest": digest} for name in ("extender", "scheduler")}
    pod = pod_of(helm, {"images": images})
    found = [each["image"] for each in (*pod["initContainers"], *pod["containers"])]
    assert found == [f"extender@{digest}", f"extender@{digest}", f"scheduler@{digest}"]


def test_the_chart_brings_the_configuration_or_takes_another(helm: Path) -> None:
    (found,) = of(chart(helm), "ConfigMap")
    assert load(found["data"]["extender.yaml"]) == SETTINGS
    (own,) = of(chart(helm, {"config": {"scheduler": "a: 1\nb: 2\n"}}), "ConfigMap")
    assert yaml.safe_load(own["data"]["scheduler.yaml"]) == {"a": 1, "b": 2}


def test_another_configuration_rolls_the_pods(helm: Path) -> None:
    sums = {
        deployment_of(chart(helm, values))["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for values in ({}, {"config": {"scheduler": "a: 1"}}, {"config": {"extender": "log: {level: debug}"}})
    }
    assert len(sums) == 3


def test_the_disruption_budget_can_be_another_or_none(helm: Path) -> None:
    (budget,) = of(chart(helm, {"disruptionBudget": {"maxUnavailable": "50%"}}), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == "50%"
    assert of(chart(helm, {"disruptionBudget": {"enabled": False}}), "PodDisruptionBudget") == []


def test_without_a_kind_its_rights_are_not_there(helm: Path) -> None:
    rules = [rule for each in of(chart(helm), "ClusterRole") for rule in each["rules"]]
    assert [rule for rule in rules if "dra-extender.dev" in rule.get("apiGroups", ())] == []


def test_the_chart_monitors_where_that_is_wanted(helm: Path) -> None:
    kinds = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
    assert of(chart(helm), *kinds) == []
    folder = DEPLOY / "monitoring"
    files = [each for name in ("service-monitor", "prometheus-rule") for each in documents(folder / f"{name}.yaml")]
    objects = chart(helm, {"monitoring": {"enabled": True}})
    assert sorted(of(objects, *kinds), key=str) == sorted(files, key=str)
    (dashboard,) = (each for each in objects if each["metadata"]["name"] == "dra-extender-dashboard")
    assert orjson.loads(dashboard["data"]["dashboard.json"]) == orjson.loads((folder / "dashboard.json").read_bytes())
    with_node = chart(helm, {"monitoring": {"enabled": True}, "node": {"enabled": True}})
    assert of(with_node, "PodMonitor") == documents(folder / "pod-monitor.yaml")


def test_the_operator_of_prometheus_finds_the_monitors_by_labels(helm: Path) -> None:
    monitoring = {"enabled": True, "namespace": "observability", "labels": {"release": "prometheus"}}
    found = of(chart(helm, {"monitoring": monitoring}), "ServiceMonitor", "PrometheusRule")
    assert [(each["metadata"]["namespace"], each["metadata"]["labels"]["release"]) for each in found] == [
        ("observability", "prometheus"),
        ("observability", "prometheus"),
    ]


def test_alerts_link_to_the_runbook_that_the_chart_is_told(helm: Path) -> None:
    here = "https://example.com/runbook"
    (rule,) = of(chart(helm, {"monitoring": {"enabled": True}, "runbook": here}), "PrometheusRule")
    first = rule["spec"]["groups"][0]["rules"][0]
    assert first["annotations"]["runbook_url"] == f"{here}#draextenderdown"


def test_the_chart_asks_callers_for_certificates_and_tokens_for_its_audience_where_that_is_wanted(helm: Path) -> None:
    api = {"enabled": True, "clientCertificates": True, "audience": "dra-extender", "secret": "mine"}
    pod = pod_of(helm, {"api": api})
    extender = pod["initContainers"][1]
    settings = load(environment=variables(extender))
    assert (settings.api.client_ca, settings.api.audience) == ("/etc/dra-extender-api/ca.crt", "dra-extender")
    certificates, tokens = pod["volumes"][-2:]
    assert certificates == {"name": "api", "secret": {"secretName": "mine"}}
    (token,) = (each["serviceAccountToken"] for each in tokens["projected"]["sources"])
    mounts = {each["name"]: each["mountPath"] for each in extender["volumeMounts"]}
    assert f"{mounts[tokens['name']]}/{token['path']}" == settings.peers.token
    assert token["audience"] == settings.api.audience


def test_the_expander_asks_callers_for_certificates_where_that_is_wanted(helm: Path) -> None:
    pod = pod_of(helm, {"expander": {"enabled": True, "clientCertificates": True, "secret": "mine"}})
    extender = pod["initContainers"][1]
    grpc = load(environment=variables(extender)).grpc
    assert {"name": "grpc", "secret": {"secretName": "mine"}} in pod["volumes"]
    (mount,) = (each["mountPath"] for each in extender["volumeMounts"] if each["name"] == "grpc")
    assert (grpc.client_ca, grpc.anonymous) == (f"{mount}/ca.crt", False)


def test_the_node_part_reserves_the_cpus_that_it_is_told(helm: Path) -> None:
    values = {"node": {"enabled": True, "reservedCpus": "0-1,32-33"}, "extraArgs": {"node": ["--cci"]}}
    (daemon_set,) = of(chart(helm, values), "DaemonSet")
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    assert "--reserved-cpus=0-1,32-33" in container["args"]
    assert container["args"][-1] == "--cci"


def test_the_chart_mounts_the_secrets_of_controllers(helm: Path) -> None:
    pod = pod_of(helm, {"controllers": {"secrets": ["licenses", "fabric.example.com"]}})
    files = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    (_, extender), (scheduler,) = pod["initContainers"], pod["containers"]
    mounts = {files[each["name"]]: each for each in extender["volumeMounts"] if each["name"] in files}
    assert {name: (each["mountPath"], each["readOnly"]) for name, each in mounts.items()} == {
        "licenses": ("/etc/dra-extender-controllers/licenses", True),
        "fabric.example.com": ("/etc/dra-extender-controllers/fabric.example.com", True),
    }
    assert scheduler["volumeMounts"] == SCHEDULER["volumeMounts"]


# --- what Kubernetes says ------------------------------------------------------------------------------------

OLDER = tuple(RELEASES[minor].version for minor in ("1.34", "1.35"))
"""Of these, the published OpenAPI judges here; `make test-chart` asks the API servers of all versions."""

SINCE_1_36: Values = {name: {"enabled": False} for name in ("onlyScheduler", "schedulingGates")}
OTHERS = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}


@pytest.mark.parametrize("release", OLDER)
def test_older_versions_of_kubernetes_have_every_field(helm: Path, release: str) -> None:
    objects = [each for each in chart(helm, {**ALL, **SINCE_1_36}, version=release) if each["kind"] not in OTHERS]
    documents_of = list(published(release, sorted({each["apiVersion"] for each in objects})))
    told = {each["metadata"]["name"]: problems_of(each, documents_of) for each in objects}
    assert {name: problems for name, problems in told.items() if problems} == {}


def test_a_field_that_an_older_version_lacks_would_be_told(helm: Path) -> None:
    deployment = deployment_of(chart(helm))
    deployment["spec"]["template"]["spec"]["prots"] = []
    told = problems_of(deployment, published(OLDER[0], ["apps/v1"]))
    assert told == [".spec.template.spec.prots: unknown"]
