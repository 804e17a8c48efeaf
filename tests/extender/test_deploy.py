"""deploy/: manifests, chart and image agree with each other, with config/, and with the code."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from click import Command
from fastapi.routing import APIRoute
from typer.main import get_command
from typer.testing import CliRunner

from extender.config.sources import keys, load, variable
from extender.faces.commands.main import app
from extender.faces.commands.node import KUBELET_DIR
from extender.faces.http.app import Listener
from extender.kube.api import ObjectKey
from extender.kube.permissions import ALLOCATES, EVICTS, WRITES, Permission
from extender.kube.resources import RESOURCES, SLICES
from extender.node.compute import CPU_DRIVER, MEMORY_DRIVER
from extender.node.compute_running import LISTS_CLAIMS, MANAGERS
from extender.node.running import PERMISSIONS
from extender.planning.templates import load_templates
from tests.extender.deployed import (
    CHART,
    CONFIG_CHECK,
    DEPLOY,
    DEPLOYMENT,
    EXTENDER,
    POD,
    RIGHTS,
    SCHEDULER,
    SCHEDULER_CONFIG,
    SETTINGS,
    documents,
    only,
    variables,
)
from tests.extender.exported import exported
from tests.kit.clusters import Cluster
from tests.kit.places import ROOT

LABELS = {"app.kubernetes.io/name": "dra-extender"}

METRICS = exported()
SAMPLES = {sample: metric for metric in METRICS.values() for sample in metric.samples}


# --- manifests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [path for path in sorted(DEPLOY.rglob("*.yaml")) if CHART not in path.parents], ids=lambda p: p.name
)
def test_every_document_is_an_object(path: Path) -> None:
    for each in documents(path):
        assert each["apiVersion"]
        assert each["kind"] in {"Kustomization", "Component", "KubeSchedulerConfiguration"} or each["metadata"]["name"]


@pytest.mark.parametrize(
    "folder",
    [
        DEPLOY,
        *(path.parent for path in sorted(DEPLOY.glob("*/kustomization.yaml"))),
        ROOT / "config",
    ],
    ids=lambda p: p.name,
)
def test_kustomizations_name_what_there_is(folder: Path) -> None:
    found = yaml.safe_load((folder / "kustomization.yaml").read_text())
    files = [file for each in found.get("configMapGenerator", ()) for file in each["files"]]
    assert [name for name in [*found.get("resources", ()), *files] if not (folder / name).exists()] == []


def test_the_base_has_every_manifest() -> None:
    base = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    there = {str(path.relative_to(DEPLOY)) for name in ("*.yaml", "rights/*.yaml") for path in DEPLOY.glob(name)}
    assert {*base["resources"], "kustomization.yaml"} == {"../config", *there}
    assert {each["name"] for each in base["images"]} == {EXTENDER["image"], SCHEDULER["image"]}


def test_the_extender_is_started_with_options_that_it_has() -> None:
    command, *options = EXTENDER["args"]
    commands: Mapping[str, Command] = getattr(get_command(app), "commands", {})
    known = {name for each in commands[command].params for name in each.opts}
    assert {option.partition("=")[0] for option in options} <= known


def test_the_configuration_is_checked_before_the_start(tmp_path: Path) -> None:
    group, command, *options = CONFIG_CHECK["args"]
    files = [option.partition("=")[2] for option in options]
    assert files == ["/etc/dra-extender/extender.yaml", "/etc/dra-extender/scheduler.yaml"]
    local = [option.replace("/etc/dra-extender", str(ROOT / "config")) for option in options]
    assert CliRunner().invoke(app, [group, command, *local]).exit_code == 0
    wrong = tmp_path / "extender.yaml"
    wrong.write_text("server: {prot: 8888}\n")
    found = CliRunner().invoke(app, [group, command, f"--config={wrong}"])
    assert found.exit_code == 1
    assert "server.prot" in found.output


def test_the_extenders_environment_is_settings_that_there_are() -> None:
    names = {each["name"] for each in EXTENDER["env"]}
    assert names <= {variable(path) for path, _ in keys()}


def test_the_scheduler_is_started_as_its_configuration_says() -> None:
    text = (ROOT / "config" / "scheduler.yaml").read_text()
    for option in SCHEDULER["args"]:
        if not option.startswith("--config="):
            assert option in text


def test_both_read_the_files_of_the_config_map() -> None:
    generated = yaml.safe_load((ROOT / "config" / "kustomization.yaml").read_text())["configMapGenerator"][0]
    assert POD["volumes"][0]["configMap"]["name"] == generated["name"]
    for container in (EXTENDER, SCHEDULER):
        (folder,) = (each["mountPath"] for each in container["volumeMounts"] if each["name"] == "config")
        (path,) = (each.partition("=")[2] for each in container["args"] if each.startswith("--config="))
        assert path.removeprefix(f"{folder}/") in generated["files"]


def test_the_verbs_stay_on_loopback_and_health_and_metrics_have_a_port() -> None:
    assert SETTINGS.server.host == "127.0.0.1"
    environment = {each["name"]: each["value"] for each in EXTENDER["env"]}
    port = load(environment=environment).operations.port
    assert EXTENDER["ports"] == [{"name": "operations", "containerPort": port}]
    (service,) = only(DEPLOY / "service.yaml", "Service")["spec"]["ports"]
    assert (service["port"], service["targetPort"]) == (port, "operations")
    (rule,) = only(DEPLOY / "network-policy.yaml", "NetworkPolicy")["spec"]["ingress"]
    assert [each["port"] for each in rule["ports"]] == [port]


def test_a_scheduler_leads_only_with_an_extender_that_is_ready_and_that_ends_after_it() -> None:
    """kubelet starts a sidecar first, waits for its startup probe, and ends it last."""
    assert EXTENDER["restartPolicy"] == "Always"
    assert EXTENDER["startupProbe"]["httpGet"] == EXTENDER["readinessProbe"]["httpGet"]
    probe = EXTENDER["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > SETTINGS.cluster.stale_seconds
    assert POD["terminationGracePeriodSeconds"] > 2 * SETTINGS.server.stop_seconds


API = DEPLOY / "api"
"""The component for callers off the node."""


def test_the_port_for_callers_off_the_node_is_one_in_the_settings_the_service_and_the_policy() -> None:
    _, container = only(API / "deployment.yaml", "Deployment")["spec"]["template"]["spec"]["initContainers"]
    settings = load(environment=variables(container))
    api, peers = settings.api, settings.peers
    assert (peers.pod, peers.ca) == ("namespace/name", f"{Path(api.certificate).parent}/ca.crt")
    assert container["ports"] == [{"name": "api", "containerPort": api.port}]
    (mount,) = container["volumeMounts"]
    files = (api.certificate, api.key)
    assert files == tuple(f"{mount['mountPath']}/{name}" for name in ("tls.crt", "tls.key"))
    of_service = only(API / "service.yaml", "Service")
    service, metadata = of_service["spec"], of_service["metadata"]
    assert (service["selector"], service["ports"][0]["targetPort"]) == (LABELS, "api")
    assert peers.server_name == f"{metadata['name']}.{metadata['namespace']}.svc"
    policy = only(API / "network-policy.yaml", "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == LABELS
    assert [each["port"] for rule in policy["ingress"] for each in rule["ports"]] == [api.port, api.port]


def test_the_component_for_the_expander_is_what_the_chart_brings() -> None:
    folder = DEPLOY / "expander"
    pod = only(folder / "deployment.yaml", "Deployment")["spec"]["template"]["spec"]
    (_, container), (volume,) = pod["initContainers"], pod["volumes"]
    grpc = load(environment=variables(container)).grpc
    assert container["ports"] == [{"name": "grpc", "containerPort": grpc.port}]
    (mount,) = container["volumeMounts"]
    assert (grpc.certificate, grpc.key) == tuple(f"{mount['mountPath']}/{name}" for name in ("tls.crt", "tls.key"))
    values = yaml.safe_load((DEPLOY / "chart" / "values.yaml").read_text())["expander"]
    assert volume == {"name": mount["name"], "secret": {"secretName": values["secret"]}}
    of_service = only(folder / "service.yaml", "Service")
    assert of_service["spec"]["ports"] == [{"name": "grpc", "port": grpc.port, "targetPort": "grpc"}]
    assert of_service["spec"]["selector"].items() <= LABELS.items()
    policy = only(folder / "network-policy.yaml", "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == LABELS
    assert policy["ingress"] == [{"from": values["from"], "ports": [{"protocol": "TCP", "port": grpc.port}]}]


def test_replicas_may_call_each_other_at_the_port_for_callers_off_the_node() -> None:
    policy = only(API / "network-policy.yaml", "NetworkPolicy")["spec"]
    others, ports = [{"podSelector": {"matchLabels": LABELS}}], [{"protocol": "TCP", "port": 8443}]
    assert policy["ingress"][1] == {"from": others, "ports": ports}
    assert policy["egress"] == [{"to": others, "ports": ports}]
    (binding,) = (each for each in documents(API / "rbac.yaml") if each["metadata"]["name"] == "dra-extender-peers")
    assert binding["roleRef"]["name"] == "dra-extender-autoscaler"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "dra-extender", "namespace": "kube-system"}]


def test_the_roles_of_callers_off_the_node_allow_what_is_served_there_and_nothing_else() -> None:
    app = Cluster.of().app(listener=Listener.API)
    served = {(verb, route.path) for route in app.routes if isinstance(route, APIRoute) for verb in route.methods or ()}
    roles = [each for each in documents(API / "rbac.yaml") if each["kind"] == "ClusterRole"]
    assert [each["metadata"]["name"] for each in roles] == ["dra-extender-viewer", "dra-extender-autoscaler"]
    allowed = {
        (verb.upper(), url)
        for role in roles
        for rule in role["rules"]
        for url in rule["nonResourceURLs"]
        for verb in rule["verbs"]
        if verb != "head"
    }
    families = {(verb, re.sub(r"^/(autoscaler|console|explain)/.*", r"/\1/*", path)) for verb, path in served}
    assert allowed == families | {("GET", "/openapi.json")}


def test_probes_and_prometheus_ask_for_paths_that_there_are() -> None:
    operations = Cluster.of().app(listener=Listener.OPERATIONS)
    served = {getattr(route, "path", "") for route in operations.routes}
    probes = [EXTENDER[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")]
    (endpoint,) = only(DEPLOY / "monitoring" / "service-monitor.yaml", "ServiceMonitor")["spec"]["endpoints"]
    assert {each["path"] for each in [*probes, endpoint]} <= served
    assert {each["port"] for each in [*probes, endpoint]} == {"operations"}


def test_everything_selects_the_pods() -> None:
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == LABELS
    assert DEPLOYMENT["spec"]["template"]["metadata"]["labels"] == LABELS
    service = only(DEPLOY / "service.yaml", "Service")
    assert service["spec"]["selector"] == LABELS
    assert only(DEPLOY / "network-policy.yaml", "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == LABELS
    monitor = only(DEPLOY / "monitoring" / "service-monitor.yaml", "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert monitor["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]]


def test_the_kubelet_waits_until_what_was_begun_is_finished() -> None:
    assert POD["terminationGracePeriodSeconds"] > 2 * SETTINGS.server.stop_seconds


def test_the_account_is_the_one_that_may() -> None:
    account = only(DEPLOY / "rbac.yaml", "ServiceAccount")["metadata"]
    assert (POD["serviceAccountName"], DEPLOYMENT["metadata"]["namespace"]) == (account["name"], account["namespace"])
    bindings = [each for path in (*RIGHTS, DEPLOY / "rbac-scheduler.yaml") for each in documents(path)]
    for binding in (each for each in bindings if each["kind"].endswith("Binding")):
        assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]


def test_the_account_may_take_the_lease_of_every_background_task() -> None:
    role = only(DEPLOY / "rbac.yaml", "Role")
    granted = {ObjectKey(role["metadata"]["namespace"], name) for name in role["rules"][1]["resourceNames"]}
    assert {lease.key for lease in Cluster.of().service().background.leases} == granted


READS = [Permission(verb, resource) for resource in RESOURCES.values() for verb in ("list", "watch")]


@pytest.mark.parametrize("permission", [*READS, *WRITES, EVICTS, ALLOCATES], ids=str)
def test_the_account_may_watch_every_watched_kind_and_write_what_every_bind_writes(permission: Permission) -> None:
    rules = [rule for path in RIGHTS for each in documents(path) for rule in each.get("rules", ())]
    resource = permission.resource
    path = f"{resource.plural}/{permission.subresource}" if permission.subresource else resource.plural
    assert any(
        resource.group in rule.get("apiGroups", ()) and path in rule["resources"] and permission.verb in rule["verbs"]
        for rule in rules
    )


def test_no_role_of_ours_allows_secrets_or_everything() -> None:
    objects = [each for path in (*RIGHTS, DEPLOY / "rbac-scheduler.yaml") for each in documents(path)]
    rules = [rule for each in objects for rule in each.get("rules", ())]
    assert rules
    assert [rule for rule in rules if {"secrets", "*"} & {each for names in rule.values() for each in names}] == []


def may(path: Path) -> set[tuple[str, str]]:
    """Verbs and kinds that the roles of a file allow to write."""
    rules = [rule for each in documents(path) for rule in each.get("rules", ()) if "resources" in rule]
    pairs = {(verb, kind) for rule in rules for verb in rule["verbs"] for kind in rule["resources"]}
    return {(verb, kind) for verb, kind in pairs if verb not in ("get", "list", "watch")}


@pytest.mark.parametrize(
    ("path", "rights"),
    [
        ("rights/preemption.yaml", {("delete", "pods")}),
        ("scheduling-gates/rights.yaml", {("patch", "pods")}),
        ("kueue/rights.yaml", {("patch", "admissionchecks/status"), ("patch", "workloads/status")}),
        ("rights/extended-resources.yaml", {("create", "resourceclaims"), ("delete", "resourceclaims")}),
        (
            "crds/resourceclasses-rights.yaml",
            {("create", "deviceclasses"), ("update", "deviceclasses"), ("patch", "resourceclasses/status")},
        ),
        ("crds/devicequotas-rights.yaml", {("patch", "devicequotas/status")}),
        (
            "crds/podschedulingcontexts-rights.yaml",
            {(verb, "podschedulingcontexts") for verb in ("create", "patch", "delete")},
        ),
    ],
)
def test_a_right_of_a_feature_is_there_only_with_the_feature(path: str, rights: set[tuple[str, str]]) -> None:
    assert may(DEPLOY / path) == rights
    assert not rights & may(DEPLOY / "rbac.yaml")


def test_a_drain_takes_one_replica_at_a_time() -> None:
    found = only(DEPLOY / "disruption-budget.yaml", "PodDisruptionBudget")
    assert found["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}}
    assert DEPLOYMENT["spec"]["replicas"] > 1


def test_the_scheduler_may_have_its_lease() -> None:
    role = only(DEPLOY / "rbac-scheduler.yaml", "Role")
    election = SCHEDULER_CONFIG["leaderElection"]
    assert role["metadata"]["namespace"] == election["resourceNamespace"]
    assert [rule.get("resourceNames") for rule in role["rules"]] == [None, [election["resourceName"]]]


def test_only_containers_that_need_the_account_get_its_token_and_it_does_not_last() -> None:
    assert POD["automountServiceAccountToken"] is False
    assert only(DEPLOY / "rbac.yaml", "ServiceAccount")["automountServiceAccountToken"] is False
    (volume,) = (each["projected"]["sources"] for each in POD["volumes"] if each["name"] == "account")
    (token,) = (each["serviceAccountToken"] for each in volume if "serviceAccountToken" in each)
    # An API server makes a year of the default, 3607 seconds, and of nothing else.
    assert token["expirationSeconds"] == 3600
    for container in (EXTENDER, SCHEDULER):
        (mount,) = (each for each in container["volumeMounts"] if each["name"] == "account")
        assert mount == {
            "name": "account",
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            "readOnly": True,
        }


def test_services_of_the_namespace_set_no_variables_that_are_read_as_settings() -> None:
    assert POD["enableServiceLinks"] is False


def test_connections_out_are_to_the_api_server_and_dns_only() -> None:
    policy = only(DEPLOY / "network-policy.yaml", "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    api_server, dns = policy["egress"]
    assert {(each["protocol"], each["port"]) for each in api_server["ports"]} == {("TCP", 443), ("TCP", 6443)}
    assert all(ip_network(each["ipBlock"]["cidr"]).is_private or "100.64" in str(each) for each in api_server["to"])
    assert {each["port"] for each in dns["ports"]} == {53}
    assert dns["to"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]


def test_containers_say_what_they_need() -> None:
    assert EXTENDER["resources"]["limits"].keys() == {"memory"}
    for container in (EXTENDER, SCHEDULER):
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_containers_have_no_more_rights_than_they_need() -> None:
    assert POD["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    shared = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
    assert [name for name in shared if POD.get(name)] == []
    for container in (EXTENDER, SCHEDULER):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


# --- the image -----------------------------------------------------------------------------------------------


DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
LOCKS = sorted(DEPLOY.glob("requirements*.txt"))


def pinned(path: Path) -> dict[str, str]:
    """Versions by name, as names are compared."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", path.read_text(), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_what_the_image_installs_is_what_the_constraints_say(lock: Path) -> None:
    constraints, locked = pinned(ROOT / "constraints.txt"), pinned(lock)
    assert locked
    assert {name: constraints.get(name) for name in locked} == locked


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_everything_that_the_image_installs_has_a_hash_and_no_address(lock: Path) -> None:
    entries = lock.read_text().replace("\\\n", "").splitlines()
    assert [
        entry for entry in entries if not re.fullmatch(r"\S+==\S+(?: ;[^-]*)?(?:\s+--hash=sha256:[0-9a-f]{64})+", entry)
    ] == []


def test_all_that_the_project_needs_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    needed = [*project["project"]["dependencies"], *extras["grpc"], *extras["opentelemetry"]]
    assert {re.sub(r"[-_.]+", "-", name).lower() for name in needed} <= pinned(DEPLOY / "requirements.txt").keys()
    assert set(project["build-system"]["requires"]) <= pinned(DEPLOY / "requirements-build.txt").keys()


def test_the_image_installs_nothing_else() -> None:
    installs = re.findall(r"pip install (.*?)(?: \\)?$", DOCKERFILE, re.MULTILINE)
    by_hash = [each for each in installs if "--require-hashes --only-binary :all:" in each]
    (ours,) = (each for each in installs if each not in by_hash)
    assert len(by_hash) == len(LOCKS)
    assert "--no-deps --no-index" in ours


def test_claims_are_written_by_updates_alone() -> None:
    """An update fails if somebody else has written since; a patch does not."""
    rules = [rule for path in RIGHTS for each in documents(path) for rule in each.get("rules", ())]
    claims = [rule for rule in rules if any(name.startswith("resourceclaims") for name in rule.get("resources", ()))]
    assert claims
    assert [rule for rule in claims if "patch" in rule["verbs"]] == []


def test_the_base_image_is_named_by_its_digest() -> None:
    assert {*re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)} == {"${PYTHON_IMAGE}"}
    (image,) = re.findall(r"^ARG PYTHON_IMAGE=(.+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.13\.\d+-slim-trixie@sha256:[0-9a-f]{64}", image)


def test_newer_digests_of_images_and_actions_are_proposed() -> None:
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    proposed = {(each["package-ecosystem"], each["directory"]) for each in updates}
    assert proposed == {("docker", "/deploy"), ("github-actions", "/")}


def test_the_library_of_python_is_compiled_in_the_image() -> None:
    """Files of the base image are not, and the image's user may write none: each start would compile them again."""
    last = DOCKERFILE[DOCKERFILE.rindex("FROM ") :]
    (command,) = (orjson.loads(each) for each in re.findall(r"^RUN (\[.+\])$", last, re.MULTILINE))
    assert command[:2] == ["python", "-c"]
    assert "compileall.compile_dir(sysconfig.get_path('stdlib')" in command[2]


def test_the_image_is_made_of_what_there_is() -> None:
    text = DOCKERFILE
    copied = [name for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for name in line.split()[:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= set(copied)
    (entry,) = orjson.loads(re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)[0])
    assert entry in project["project"]["scripts"]
    (user,) = re.findall(r"^USER (\d+):", text, re.MULTILINE)
    assert int(user) == POD["securityContext"]["runAsUser"]


# --- monitoring ----------------------------------------------------------------------------------------------

DASHBOARD: Any = orjson.loads((DEPLOY / "monitoring" / "dashboard.json").read_bytes())
RULES: list[Any] = only(DEPLOY / "monitoring" / "prometheus-rule.yaml", "PrometheusRule")["spec"]["groups"][0]["rules"]

UP = "up"
"""Of each target, by Prometheus itself."""

TARGET_LABELS = frozenset({"pod", "namespace", "job", "instance", "le"})
"""What Prometheus adds, and what histograms have."""


def queries() -> Iterator[tuple[str, str]]:
    yield from ((rule["alert"], rule["expr"]) for rule in RULES)
    yield from ((panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"])


@pytest.mark.parametrize(("title", "query"), [*queries()], ids=[title for title, _ in queries()])
def test_every_query_is_about_metrics_that_there_are(title: str, query: str) -> None:
    names = set(re.findall(r"\b(?:dra_extender|process|cci_manager)_[a-z_]+|\bup\b", query))
    assert names, title
    assert names <= {*SAMPLES, UP}
    known = {label for name in names - {UP} for label in SAMPLES[name].labels} | TARGET_LABELS
    grouped = [label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")]
    matched = re.findall(r"[{,]\s*([a-z_]+)(?:=~|!~|!=|=)", query)
    assert {*grouped, *matched} <= known


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_says_what_it_means_and_what_to_look_at(rule: Any) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    named = set(re.findall(r"\$labels\.([a-z]+)", str(rule["annotations"])))
    grouped = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", rule["expr"]) for label in group.split(",")}
    assert named <= grouped


def test_every_metric_of_ours_is_on_the_dashboard() -> None:
    shown = set(re.findall(r"\bdra_extender_[a-z_]+", " ".join(query for _, query in queries())))
    ours = {name: metric for name, metric in METRICS.items() if name.startswith("dra_extender_")}
    assert [name for name, metric in ours.items() if not metric.samples & shown] == []


# deploy/: what runs on nodes agrees with the code.


def allowed(role: Any) -> set[tuple[str, str, str]]:
    """Verb, group and kind of what a role allows."""
    return {(verb, *rule["apiGroups"], *rule["resources"]) for rule in role["rules"] for verb in rule["verbs"]}


DRIVES = {(each.verb, each.resource.group, each.resource.plural) for each in PERMISSIONS} | {
    ("list", SLICES.group, SLICES.plural)
}


def test_the_node_part_is_started_with_options_that_it_has_and_may_do_what_it_does() -> None:
    folder = DEPLOY / "node"
    (container,) = only(folder / "daemonset.yaml", "DaemonSet")["spec"]["template"]["spec"]["containers"]
    command, *options = container["args"]
    commands: Mapping[str, Command] = getattr(get_command(app), "commands", {})
    assert {option.partition("=")[0] for option in options} <= {
        name for each in commands[command].params for name in each.opts
    }
    places = {str(each.default) for each in commands[command].params if isinstance(each.default, Path)}
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    kubelet = {str(KUBELET_DIR / name) for name in ("plugins", "plugins_registry", *(each.file for each in MANAGERS))}
    assert kubelet <= mounts
    others = places - {str(KUBELET_DIR)}
    assert {place for place in others if not any(place.startswith(mount) for mount in mounts)} == set()
    lists = (LISTS_CLAIMS.verb, LISTS_CLAIMS.resource.group, LISTS_CLAIMS.resource.plural)
    assert allowed(only(folder / "rbac.yaml", "ClusterRole")) == DRIVES | {lists}
    classes = [each["spec"]["selectors"][0]["cel"]["expression"] for each in documents(folder / "classes.yaml")]
    assert classes == [f'device.driver == "{name}"' for name in (CPU_DRIVER, MEMORY_DRIVER)]


def test_the_node_part_has_no_more_rights_than_it_needs() -> None:
    folder = DEPLOY / "node"
    pod = only(folder / "daemonset.yaml", "DaemonSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    shared = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
    assert [name for name in shared if pod.get(name)] == []
    assert container["securityContext"] == {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    paths = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
    assert str(KUBELET_DIR) not in paths.values(), "it has the Secrets of other pods"
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert {name: mounts[name] for name in paths} == paths, "sockets and CDI files have one path in and out"
    assert pod["automountServiceAccountToken"] is False
    assert only(folder / "rbac.yaml", "ServiceAccount")["automountServiceAccountToken"] is False


def test_the_policy_for_slices_is_about_the_account_and_the_drivers_of_the_node_part() -> None:
    folder = DEPLOY / "node"
    policy = only(folder / "policy.yaml", "ValidatingAdmissionPolicy")
    account = only(folder / "rbac.yaml", "ServiceAccount")["metadata"]
    (condition,) = policy["spec"]["matchConditions"]
    assert f'"system:serviceaccount:{account["namespace"]}:{account["name"]}"' in condition["expression"]
    assert f'["{CPU_DRIVER}", "{MEMORY_DRIVER}"]' in policy["spec"]["validations"][1]["expression"]
    binding = only(folder / "policy.yaml", "ValidatingAdmissionPolicyBinding")["spec"]
    assert binding == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


def test_prometheus_finds_the_metrics_of_the_node_part() -> None:
    found = only(DEPLOY / "monitoring/pod-monitor.yaml", "PodMonitor")
    monitor, name = found["spec"], found["metadata"]["name"]
    daemon_set = only(DEPLOY / "node/daemonset.yaml", "DaemonSet")
    template = daemon_set["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (port,) = container["ports"]
    assert monitor["namespaceSelector"]["matchNames"] == [daemon_set["metadata"]["namespace"]]
    assert monitor["selector"]["matchLabels"] == template["metadata"]["labels"]
    assert [each["port"] for each in monitor["podMetricsEndpoints"]] == [port["name"]]
    assert f"--metrics-port={port['containerPort']}" in container["args"]
    (group,) = only(DEPLOY / "monitoring/prometheus-rule.yaml", "PrometheusRule")["spec"]["groups"]
    (down,) = (each["expr"] for each in group["rules"] if each["alert"] == "DRAExtenderNodeDown")
    # The operator names the job of a PodMonitor by its namespace and name.
    assert f'up{{job=~".*/{name}"}}' in down


def test_the_mock_driver_is_started_with_options_that_it_has_and_may_do_what_a_driver_does() -> None:
    folder = DEPLOY / "mock-driver"
    (container,) = only(folder / "daemonset.yaml", "DaemonSet")["spec"]["template"]["spec"]["containers"]
    command, path = container["args"]
    assert command in getattr(get_command(app), "commands", {})
    assert [each["name"] for each in container["env"]] == ["NODE_NAME"]
    templates = only(folder / "templates-map.yaml", "ConfigMap")["data"][Path(path).name]
    assert [each.name for each in load_templates(templates, file=path)] == ["gpus"]
    assert allowed(only(folder / "rbac.yaml", "ClusterRole")) == DRIVES


def test_the_mock_driver_has_no_more_rights_than_the_node_part() -> None:
    folder = DEPLOY / "mock-driver"
    daemon_set, of_node_part = (only(each / "daemonset.yaml", "DaemonSet") for each in (folder, DEPLOY / "node"))
    pod, other = (each["spec"]["template"]["spec"] for each in (daemon_set, of_node_part))
    for field in ("automountServiceAccountToken", "enableServiceLinks", "securityContext"):
        assert pod[field] == other[field], field
    assert pod["containers"][0]["securityContext"] == other["containers"][0]["securityContext"]
    assert only(folder / "rbac.yaml", "ServiceAccount")["automountServiceAccountToken"] is False
    tokens = [each for spec in (pod, other) for each in spec["volumes"] if each["name"] == "account"]
    assert tokens[0] == tokens[1]


def test_the_policy_for_slices_of_the_mock_driver_names_the_drivers_of_its_templates() -> None:
    folder = DEPLOY / "mock-driver"
    policy = only(folder / "policy.yaml", "ValidatingAdmissionPolicy")["spec"]
    account = only(folder / "rbac.yaml", "ServiceAccount")["metadata"]
    assert (
        f'"system:serviceaccount:{account["namespace"]}:{account["name"]}"'
        in policy["matchConditions"][0]["expression"]
    )
    (text,) = only(folder / "templates-map.yaml", "ConfigMap")["data"].values()
    drivers = {str(each["driver"]) for found in load_templates(text, file="t") for each in found.specs}
    assert policy["validations"][1]["expression"].endswith(f"in {sorted(drivers)}".replace("'", '"'))


def test_what_runs_as_root_on_a_node_says_so_and_has_a_limit_to_its_memory() -> None:
    for name in ("node", "mock-driver"):
        daemon_set = only(DEPLOY / name / "daemonset.yaml", "DaemonSet")
        assert daemon_set["metadata"]["annotations"]["kubernetes.io/description"].startswith("Root on the node")
        (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"].keys() == {"memory"}
