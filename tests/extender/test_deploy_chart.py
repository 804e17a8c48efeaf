"""The chart deploys what the manifests do."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

import orjson
import yaml

from extender.cluster.objects.extended_resources import MARKER
from extender.config.sources import load
from extender.tools.version import __version__
from tests.extender.deployed import (
    CHART,
    DEPLOY,
    DEPLOYMENT,
    EXTENDER,
    POD,
    SCHEDULER,
    SCHEDULER_CONFIG,
    SETTINGS,
    documents,
    only,
    variables,
)

# --- the chart -----------------------------------------------------------------------------------------------


def rendered(template: str, values: Mapping[str, Any]) -> list[Any]:
    """The documents of a template, as far as ours go: Helm itself is not needed for that."""
    text = (CHART / "templates" / template).read_text()
    for pattern, step in steps(values):
        text = re.sub(pattern, step, text, flags=re.DOTALL)
    return [each for each in yaml.safe_load_all(text) if each]


def steps(values: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[re.Match[str]], str]]]:
    """Each form of text in our templates, and what Helm would put in its place; to be done in this order."""

    def value(path: str) -> Any:
        return reduce(lambda found, part: found[part], path.split("."), values)

    def repeated(found: re.Match[str]) -> str:
        entries = enumerate(value(found[1]))
        return "".join(found[2].replace("{{ $index }}", str(i)).replace("{{ $name }}", name) for i, name in entries)

    yield r"\{\{- range \$index, \$name := \.Values\.(\S+) \}\}(.*?)\{\{- end \}\}", repeated
    yield (
        r"\{\{- if and \.Values\.(\S+) \.Values\.(\S+) \}\}(.*?)\{\{- end \}\}",
        lambda found: found[3] if value(found[1]) and value(found[2]) else "",
    )
    yield r"\{\{- if \.Values\.(\S+) \}\}(.*?)\{\{- end \}\}", lambda found: found[2] if value(found[1]) else ""
    yield (
        r"\{\{ if \.Values\.(\S+) \}\}(.*?)\{\{ else \}\}(.*?)\{\{ end \}\}",
        lambda found: found[2] if value(found[1]) else found[3],
    )
    yield r"\{\{ print [^{}]* \| sha256sum \}\}", lambda _: "sum"
    yield (
        r'\{\{ default \(\.Files\.Get "(\S+)"\) \.Values\.(\S+) \| indent (\d+) \}\}',
        lambda found: indented(value(found[2]) or file(found[1]), found[3]),
    )
    yield r'\{\{ \.Files\.Get "(\S+)" \| indent (\d+) \}\}', lambda found: indented(file(found[1]), found[2])
    yield r'\{\{ \.Files\.Get "(\S+)" \}\}', lambda found: file(found[1])
    yield (
        r'\{\{ \.Files\.Get "(\S+)" \| replace "(\S+)" \.Values\.(\S+) \}\}',
        lambda found: file(found[1]).replace(found[2], value(found[3])),
    )
    yield (
        r"\{\{ toYaml \.Values\.(\S+) \| indent (\d+) \}\}",
        lambda found: indented(yaml.safe_dump(value(found[1])), found[2]),
    )
    yield r"\{\{ toJson \.Values\.(\S+) \}\}", lambda found: orjson.dumps(value(found[1])).decode()
    yield r"\{\{ \.Values\.(\S+) \}\}", lambda found: text_of(value(found[1]))


def text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def indented(text: str, width: str) -> str:
    return "\n".join(" " * int(width) + line for line in text.splitlines())


def file(name: str) -> str:
    return (CHART / name).read_text()


VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
OPTIONAL_KINDS = ("deviceQuotas", "resourceClasses", "podSchedulingContexts")


def test_the_chart_deploys_what_the_base_does() -> None:
    (found,) = rendered("deployment.yaml", VALUES)
    pod = found["spec"]["template"]
    assert pod["metadata"].pop("annotations") == {"checksum/config": "sum"}
    assert [pod["spec"].pop(name) for name in ("nodeSelector", "tolerations")] == [{}, []]
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        container["image"] = container["image"].partition(":")[0]
    assert found == DEPLOYMENT


def test_the_chart_has_the_other_manifests_as_they_are() -> None:
    assert rendered("rbac.yaml", VALUES) == [
        *documents(DEPLOY / "rbac.yaml"),
        *documents(DEPLOY / "rbac-scheduler.yaml"),
        *documents(DEPLOY / "rights" / "preemption.yaml"),
        *documents(DEPLOY / "rights" / "extended-resources.yaml"),
    ]
    assert rendered("network.yaml", VALUES) == [
        *documents(DEPLOY / "service.yaml"),
        *documents(DEPLOY / "network-policy.yaml"),
        *documents(DEPLOY / "disruption-budget.yaml"),
    ]


def test_the_chart_makes_it_the_only_scheduler_where_that_is_wanted() -> None:
    """As the component: policies, a configuration for the scheduler, and the settings that go with it."""
    values = {**VALUES, "onlyScheduler": {"enabled": True}}
    folder = DEPLOY / "only-scheduler"
    assert rendered("only-scheduler.yaml", VALUES) == []
    assert rendered("only-scheduler.yaml", values) == documents(folder / "policies.yaml")
    (config,) = rendered("config.yaml", values)
    assert yaml.safe_load(config["data"]["scheduler.yaml"]) == yaml.safe_load((folder / "scheduler.yaml").read_text())
    (found,) = rendered("deployment.yaml", values)
    (container,) = found["spec"]["template"]["spec"]["initContainers"]
    (patched,) = only(folder / "deployment.yaml", "Deployment")["spec"]["template"]["spec"]["initContainers"]
    assert all(each in container["env"] for each in patched["env"])
    scheduling = load(environment=variables(container)).scheduling
    profiles = [each["schedulerName"] for each in yaml.safe_load(config["data"]["scheduler.yaml"])["profiles"]]
    assert (scheduling.marked_pods_only, sorted(scheduling.scheduler_names)) == (True, sorted(profiles))


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


def test_a_feature_that_is_off_in_the_chart_takes_its_rights_with_it() -> None:
    names = {each["metadata"]["name"] for each in rendered("rbac.yaml", VALUES)}
    without = {**VALUES, "preemption": False, "extendedResources": False}
    left = {each["metadata"]["name"] for each in rendered("rbac.yaml", without)}
    assert names - left == {"dra-extender-preemption", "dra-extender-extended-resources"}
    (found,) = rendered("deployment.yaml", without)
    container = found["spec"]["template"]["spec"]["initContainers"][0]
    assert load(environment=variables(container)).scheduling.preemption is False
    with_classes = rendered("crds.yaml", {**VALUES, "resourceClasses": True})
    assert "dra-extender-resource-classes" in {each["metadata"]["name"] for each in with_classes}
    assert rendered("crds.yaml", VALUES) == []


def test_every_file_of_the_chart_is_a_link_to_the_one_that_others_use() -> None:
    """Helm follows links when it packs a chart."""
    files = list((CHART / "files").iterdir())
    assert files
    assert [each.name for each in files if not each.is_symlink() or not each.resolve().is_file()] == []


def test_the_chart_brings_the_configuration_or_takes_another() -> None:
    (found,) = rendered("config.yaml", VALUES)
    assert found["metadata"]["name"] == POD["volumes"][0]["configMap"]["name"]
    assert yaml.safe_load(found["data"]["scheduler.yaml"]) == SCHEDULER_CONFIG
    assert load(found["data"]["extender.yaml"]) == SETTINGS
    own = {**VALUES, "config": {"scheduler": "a: 1\nb: 2\n", "extender": ""}}
    assert yaml.safe_load(rendered("config.yaml", own)[0]["data"]["scheduler.yaml"]) == {"a": 1, "b": 2}


def test_an_image_is_named_by_its_digest_where_there_is_one() -> None:
    digest = f"sha256:{'0' * 64}"
    own = {name: {**image, "digest": digest} for name, image in VALUES["images"].items()}
    (found,) = rendered("deployment.yaml", {**VALUES, "images": own})
    pod = found["spec"]["template"]["spec"]
    containers = (*pod["initContainers"], *pod["containers"])
    assert [each["image"] for each in containers] == [f"dra-extender@{digest}", f"kube-scheduler@{digest}"]


def test_the_chart_monitors_where_that_is_wanted() -> None:
    assert rendered("monitoring.yaml", VALUES) == []
    monitor, rule, dashboard = rendered("monitoring.yaml", {**VALUES, "monitoring": True})
    folder = DEPLOY / "monitoring"
    assert [monitor, rule] == [*documents(folder / "service-monitor.yaml"), *documents(folder / "prometheus-rule.yaml")]
    assert orjson.loads(dashboard["data"]["dashboard.json"]) == orjson.loads((folder / "dashboard.json").read_bytes())


def test_the_chart_brings_our_kinds_where_that_is_wanted() -> None:
    kinds = {key: documents(DEPLOY / "crds" / f"{key.lower()}.yaml") for key in OPTIONAL_KINDS}
    kinds["resourceClasses"] += documents(DEPLOY / "crds" / "resourceclasses-rights.yaml")
    assert rendered("crds.yaml", VALUES) == []
    for key, definition in kinds.items():
        assert rendered("crds.yaml", {**VALUES, key: True}) == definition
    assert rendered("crds.yaml", {**VALUES, **dict.fromkeys(kinds, True)}) == [
        each for found in kinds.values() for each in found
    ]


def test_the_chart_opens_the_port_for_callers_off_the_node_where_that_is_wanted() -> None:
    assert rendered("api.yaml", VALUES) == []
    own = {**VALUES, "api": {**VALUES["api"], "enabled": True}}
    folder = DEPLOY / "api"
    assert rendered("api.yaml", own) == [
        *(each for name in ("service", "rbac", "network-policy") for each in documents(folder / f"{name}.yaml"))
    ]
    (found,) = rendered("deployment.yaml", own)
    (patch,) = documents(folder / "deployment.yaml")
    pod, added = found["spec"]["template"]["spec"], patch["spec"]["template"]["spec"]
    assert pod["volumes"] == [*POD["volumes"], *added["volumes"]]
    extender = pod["initContainers"][0]
    for field in ("env", "ports", "volumeMounts"):
        assert extender[field] == [*EXTENDER[field], *added["initContainers"][0][field]]


def test_the_chart_asks_callers_for_certificates_and_tokens_for_its_audience_where_that_is_wanted() -> None:
    api = {**VALUES["api"], "enabled": True, "clientCertificates": True, "audience": "dra-extender", "secret": "mine"}
    (found,) = rendered("deployment.yaml", {**VALUES, "api": api})
    pod = found["spec"]["template"]["spec"]
    settings = load(environment=variables(pod["initContainers"][0]))
    assert (settings.api.client_ca, settings.api.audience) == ("/etc/dra-extender-api/ca.crt", "dra-extender")
    certificates, tokens = pod["volumes"][-2:]
    assert certificates == {"name": "api", "secret": {"secretName": "mine"}}
    (token,) = (each["serviceAccountToken"] for each in tokens["projected"]["sources"])
    mounts = {each["name"]: each["mountPath"] for each in pod["initContainers"][0]["volumeMounts"]}
    assert f"{mounts[tokens['name']]}/{token['path']}" == settings.peers.token
    assert token["audience"] == settings.api.audience


def test_the_chart_opens_the_port_for_the_expander_where_that_is_wanted() -> None:
    assert rendered("expander.yaml", VALUES) == []
    own = {**VALUES, "expander": {**VALUES["expander"], "enabled": True, "anonymous": True, "secret": "mine"}}
    service, policy = rendered("expander.yaml", own)
    (found,) = rendered("deployment.yaml", own)
    pod = found["spec"]["template"]["spec"]
    extender = pod["initContainers"][0]
    grpc = load(environment=variables(extender)).grpc
    assert {"name": "grpc", "containerPort": grpc.port} in extender["ports"]
    assert service["spec"]["ports"] == [{"name": "grpc", "port": grpc.port, "targetPort": "grpc"}]
    assert service["spec"]["selector"].items() <= found["spec"]["template"]["metadata"]["labels"].items()
    assert policy["spec"]["ingress"] == [
        {"from": VALUES["expander"]["from"], "ports": [{"protocol": "TCP", "port": grpc.port}]}
    ]
    assert {"name": "grpc", "secret": {"secretName": "mine"}} in pod["volumes"]
    (mount,) = (each["mountPath"] for each in extender["volumeMounts"] if each["name"] == "grpc")
    assert (grpc.certificate, grpc.key) == (f"{mount}/tls.crt", f"{mount}/tls.key")
    asking = {**own, "expander": {**own["expander"], "anonymous": False, "clientCertificates": True}}
    (found,) = rendered("deployment.yaml", asking)
    grpc = load(environment=variables(found["spec"]["template"]["spec"]["initContainers"][0])).grpc
    assert (grpc.client_ca, grpc.anonymous) == (f"{mount}/ca.crt", False)


def test_the_chart_brings_the_node_part_where_that_is_wanted() -> None:
    assert rendered("node.yaml", VALUES) == []
    own = {**VALUES, "node": {**VALUES["node"], "enabled": True}}
    *others, daemon_set = rendered("node.yaml", own)
    folder = DEPLOY / "node"
    assert others == [each for name in ("classes", "rbac", "policy") for each in documents(folder / f"{name}.yaml")]
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    container["image"] = container["image"].partition(":")[0]
    assert [daemon_set] == documents(folder / "daemonset.yaml")
    reserving = {**own, "node": {**own["node"], "reservedCpus": "0-1,32-33"}}
    (container,) = rendered("node.yaml", reserving)[-1]["spec"]["template"]["spec"]["containers"]
    assert "--reserved-cpus=0-1,32-33" in container["args"]


def test_the_chart_monitors_the_node_part_where_there_is_one() -> None:
    own = {**VALUES, "monitoring": True, "node": {**VALUES["node"], "enabled": True}}
    assert rendered("monitoring.yaml", own)[-1:] == documents(DEPLOY / "monitoring" / "pod-monitor.yaml")


def test_the_chart_mounts_the_secrets_of_controllers() -> None:
    (found,) = rendered("deployment.yaml", {**VALUES, "controllers": {"secrets": ["licenses", "fabric.example.com"]}})
    pod = found["spec"]["template"]["spec"]
    files = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    (extender,), (scheduler,) = pod["initContainers"], pod["containers"]
    mounts = {files[each["name"]]: each for each in extender["volumeMounts"] if each["name"] in files}
    assert {name: (each["mountPath"], each["readOnly"]) for name, each in mounts.items()} == {
        "licenses": ("/etc/dra-extender-controllers/licenses", True),
        "fabric.example.com": ("/etc/dra-extender-controllers/fabric.example.com", True),
    }
    assert scheduler["volumeMounts"] == SCHEDULER["volumeMounts"]


def test_alerts_link_to_the_runbook_that_the_chart_is_told() -> None:
    here = "https://example.com/runbook"
    _, rule, _ = rendered("monitoring.yaml", {**VALUES, "monitoring": True, "runbook": here})
    first = rule["spec"]["groups"][0]["rules"][0]
    assert first["annotations"]["runbook_url"] == f"{here}#draextenderdown"


def test_the_charts_version_is_ours() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
