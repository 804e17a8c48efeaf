"""deploy/: what runs on nodes agrees with the code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click import Command
from typer.main import get_command

from extender.faces.commands.main import app
from extender.faces.commands.node import KUBELET_DIR
from extender.kube.resources import SLICES
from extender.node.compute import CPU_DRIVER, MEMORY_DRIVER
from extender.node.compute_running import CPU_MANAGER, LISTS_CLAIMS
from extender.node.running import PERMISSIONS
from extender.planning.templates.node_templates import load_templates
from tests.extender.deployed import DEPLOY, documents, only


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
    kubelet = {str(KUBELET_DIR / name) for name in ("plugins", "plugins_registry", CPU_MANAGER)}
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
