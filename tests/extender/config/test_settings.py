"""Settings: where they come from, which wins, and what is refused in which words."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from allocator import GATES, Features
from allocator.tools import JSON
from extender.config.settings import ParameterKind, Settings
from extender.config.sources import ENVIRONMENT_PREFIX, SettingsError, keys, load, variable
from extender.faces.http.endpoints.scheduler_verbs import VERBS
from extender.kube.connection.transport import HttpRequest
from extender.kube.discovery import GATES_SECONDS, ServerGates, server_gates
from tests.kit.places import CONFIG
from tests.kit.servers.transport import DEFAULT_GATES, HEALTHY, FakeApi, Fault, gate_metrics
from tests.kit.virtualtime import run


def test_nothing_given_gives_the_defaults() -> None:
    settings = load()
    assert settings == Settings()
    assert settings.server.port == 8888
    assert settings.features == Features()


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    text = "server: {port: 1001, host: 10.0.0.1, prefix: /a}"
    environment = {"DRA_EXTENDER__SERVER__PORT": "1002", "DRA_EXTENDER__SERVER__PREFIX": "/b"}
    server = load(text, environment=environment, flags={"server.port": 1003, "server.prefix": None}).server
    assert (server.host, server.prefix, server.port) == ("10.0.0.1", "/b", 1003)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("server: {prefix: /}", ""),
        ("server: {prefix: /scheduler}", "/scheduler"),
        ("server: {prefix: /scheduler/}", "/scheduler"),
        ("server: {prefix: /a/b}", "/a/b"),
    ],
)
def test_prefix_is_kept_without_its_last_slash(text: str, expected: str) -> None:
    assert load(text).server.prefix == expected


def test_a_kind_of_parameters_has_pythons_names_in_python_and_camel_case_in_files() -> None:
    made = ParameterKind(api_version="gpu.example.com/v1", kind="Needs", resource="needs")
    assert (made.group, made.namespaced) == ("gpu.example.com", True)
    file = "controllers: [{name: a.b, url: 'http://localhost:1', parameters: [{%s: g/v1, kind: K, resource: ks}]}]"
    assert load(file % "apiVersion").controllers[0].parameters[0].api_version == "g/v1"
    with pytest.raises(SettingsError, match=r"parameters\.0\.api_version|parameters\[0\]\.api_version"):
        load(file % "api_version")


def test_feature_gates_have_their_kubernetes_names() -> None:
    assert not load("featureGates: {DRAAdminAccess: false}").features.admin_access
    gates = {"DRA_EXTENDER__FEATURE_GATES": "DRAListTypeAttributes=true, DRADeviceTaints=false"}
    features = load(environment=gates).features
    assert (features.list_type_attributes, features.device_taints) == (True, False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "prot: 1",
            (
                "prot: unknown key "
                "(known: admissionChecks, api, autoscaler, cluster, controllers, evictions, featureGates, grpc, log, "
                "memory, operations, peers, scheduling, schedulingGates, server, tracing, usage)"
            ),
        ),
        ("server: {prot: 1}", 'server.prot: unknown key, did you mean "port"?'),
        ("server: {keepaliveSeconds: 99}", 'server.keepaliveSeconds: unknown key, did you mean "keepAliveSeconds"?'),
        (
            "server: {keep_alive_seconds: 99}",
            'server.keep_alive_seconds: unknown key, did you mean "keepAliveSeconds"?',
        ),
        ("server: {prefix: /autoscaler/}", 'server.prefix: "/autoscaler/" is the path of the verbs for autoscalers'),
        (
            "tracing: {endpoint: 'collector:4318'}",
            'tracing.endpoint: "collector:4318" is not a URL such as "http://collector:4318"',
        ),
        ("tracing: {sampleRatio: 2}", "tracing.sampleRatio: expected 1.0 or less, not 2"),
        ("autoscaler: {sessions: 0}", "autoscaler.sessions: expected 1 or more, not 0"),
        ("server: {port: 70000}", "server.port: expected 65535 or less, not 70000"),
        ("server: {port: http}", 'server.port: expected a whole number, not "http"'),
        ("server: {port: '80'}", 'server.port: expected a whole number, not "80"'),
        ("server: {port: true}", "server.port: expected a whole number, not true"),
        ("server: {port: 80.0}", "server.port: expected a whole number, not 80.0"),
        ("server: {port: null}", "server.port: expected a whole number, not null"),
        ("server: {host: 10}", "server.host: expected a text, not 10"),
        ("server: {host: ''}", 'server.host: expected a text that is not empty, not ""'),
        ("server: {host: a b}", 'server.host: "a b" is not the name or address of a host'),
        (r'operations: {host: "a\0b"}', r'operations.host: "a\u0000b" is not the name or address of a host'),
        ("server: 7", "server: expected keys and values, not 7"),
        ("server: []", "server: expected keys and values, not []"),
        ("server: {keepAliveSeconds: 60}", "server.keepAliveSeconds: expected more than 90, not 60"),
        ("server: {prefix: scheduler}", 'server.prefix: "scheduler" is not a URL path such as "/scheduler"'),
        ("scheduling: {policy: bestfit}", 'scheduling.policy: unknown policy "bestfit", did you mean "best-fit"?'),
        ("scheduling: {maxSeconds: .inf}", 'scheduling.maxSeconds: expected a number, not ".inf"'),
        ("scheduling: {maxSeconds: 1e400}", 'not YAML: line 1: "1e400" is too large for a number'),
        ("scheduling: {maxSeconds: yes}", "scheduling.maxSeconds: expected a number, not true"),
        ("scheduling: {maxSeconds: -0.5}", "scheduling.maxSeconds: expected more than 0, not -0.5"),
        ("scheduling: {bestNodes: 1.5}", "scheduling.bestNodes: expected a whole number, not 1.5"),
        ("featureGates: {DRAAdminAccess: 1}", "featureGates.DRAAdminAccess: expected true or false, not 1"),
        ("featureGates: {DRAAdminAccess: on it}", 'featureGates.DRAAdminAccess: expected true or false, not "on it"'),
        ("featureGates: true", "featureGates: expected keys and values, not true"),
        (
            "autoscaler: {daemonSetDrivers: {a: []}}",
            'autoscaler.daemonSetDrivers: "a" is not namespace/name of a DaemonSet',
        ),
        (
            "autoscaler: {daemonSetDrivers: {a/b: [c d]}}",
            'autoscaler.daemonSetDrivers: a/b: "c d" is not a driver\'s name: a DNS subdomain',
        ),
        ("peers: {pod: b}", 'peers.pod: "b" is not namespace/name of a pod'),
        (
            "autoscaler: {learnFromLabel: node group}",
            'autoscaler.learnFromLabel: "node group" is not a label\'s name: letters, digits, -, _ and .',
        ),
        ("autoscaler: {learnFromLabel: /group}", 'autoscaler.learnFromLabel: "/group" has a domain that is empty'),
        (
            "featureGates: {DRAAdminAcces: true}",
            'featureGates: unknown feature gate "DRAAdminAcces", did you mean "DRAAdminAccess"?',
        ),
        ("log: {format: xml}", "log.format: expected 'auto', 'console' or 'json', not \"xml\""),
        ("- a", 'expected keys and values at the top, not ["a"]'),
        ("server:\n  port: 1\n  port: 2", 'not YAML: line 3: the key "port" is there twice'),
        ("log: {}\n---\nlog: {}", "expected one document, not 2"),
        ("\na: [", "not YAML: line 2: did not find expected node content"),
        ("a: !b", "not YAML: line 1: the tag !b is unknown here"),
    ],
)
def test_a_bad_file_is_refused_with_file_key_and_value(text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(text, file="f.yaml")
    assert caught.value.problems == (f"f.yaml: {problem}",)


def test_text_that_yaml_cannot_read_at_all_is_refused_too() -> None:
    with pytest.raises(SettingsError, match=r"^f.yaml: not YAML: line 1: control characters"):
        load("a: \x00", file="f.yaml")


def test_all_problems_of_all_sources_are_told() -> None:
    with pytest.raises(SettingsError) as caught:
        load(
            "server: {prot: 1, port: -1}",
            environment={"DRA_EXTENDER__LOG__LEVEL": "loud"},
            flags={"server.host": ""},
        )
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["settings"] * 2 + ["environment", "flags"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "DRA_EXTENDER__SERVER__PORT",
            'environment: DRA_EXTENDER__SERVER__PORT: expected a whole number, not "x"',
        ),
        (
            "DRA_EXTENDER__SCHEDULING__MAX_SECONDS",
            'environment: DRA_EXTENDER__SCHEDULING__MAX_SECONDS: expected a number, not "x"',
        ),
        (
            "DRA_EXTENDER__SERVER__PROT",
            'environment: DRA_EXTENDER__SERVER__PROT: unknown variable, did you mean "DRA_EXTENDER__SERVER__PORT"?',
        ),
        (
            "DRA_EXTENDER__FEATURE_GATES",
            'environment: DRA_EXTENDER__FEATURE_GATES: "x" is not of the form Gate=true',
        ),
    ],
)
def test_a_bad_variable_is_refused_by_name(name: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(environment={name: "x"})
    assert caught.value.problems == (problem,)


def test_a_gate_that_is_neither_true_nor_false_is_refused_by_variable_and_name() -> None:
    with pytest.raises(SettingsError) as caught:
        load(environment={"DRA_EXTENDER__FEATURE_GATES": "DRAAdminAccess=maybe"})
    assert caught.value.problems == (
        'environment: DRA_EXTENDER__FEATURE_GATES: DRAAdminAccess: expected true or false, not "maybe"',
    )


def test_a_group_that_is_all_comments_has_its_defaults() -> None:
    assert load("server:\n  # port: 1\nfeatureGates:\n") == Settings()


@pytest.mark.parametrize(
    ("host", "operations", "clashes"),
    [
        ("127.0.0.1", "0.0.0.0", True),
        ("0.0.0.0", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("::", "::1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::1", "0.0.0.0", False),
    ],
)
def test_one_port_is_not_for_two_listeners_wherever_it_was_set(host: str, operations: str, *, clashes: bool) -> None:
    text = f"{{server: {{host: '{host}'}}, operations: {{host: '{operations}', port: 9000}}}}"
    flags = {"server.port": 9000}
    if not clashes:
        assert load(text, flags=flags).operations.port == 9000
        return
    with pytest.raises(SettingsError) as caught:
        load(text, flags=flags)
    (problem,) = caught.value.problems
    assert problem.startswith(
        f"operations.port: 9000 is server.port as well ({' and '.join(sorted({host, operations}))})"
    )


OPEN_GRPC = (
    "grpc.clientCa: a port off the loopback asks clients for certificates; give the file of their authorities, "
    "or set grpc.anonymous if a network policy lets only Cluster Autoscaler reach the port"
)
OWN_GRPC_PORT = "gRPC needs a port of its own, or 0 for none"
OWN_PORT = "callers off the node need a port of their own, or 0 for none"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "api: {port: 8443}",
            "api.certificate: a port for callers off the node has TLS; give the files of a certificate and its key",
        ),
        (
            "{api: {port: 1, certificate: a, key: b}, peers: {serverName: s, pod: a/b}}",
            "peers.serverName: to pass calls on to other replicas, peers.ca is needed as well",
        ),
        (
            "peers: {serverName: s, pod: a/b, ca: c}",
            "peers.serverName: to pass calls on to other replicas, api.port is needed as well",
        ),
        ("api: {certificate: a}", "api.key: api.certificate needs the file of its private key"),
        ("server: {key: a}", "server.certificate: server.key needs the file of its certificate"),
        (
            "server: {clientCa: a}",
            "server.certificate: server.clientCa asks clients for certificates, which needs TLS",
        ),
        (
            "api: {port: 8888, certificate: a, key: b}",
            f"api.port: 8888 is server.port as well (0.0.0.0 and 127.0.0.1): {OWN_PORT}",
        ),
        (
            "{api: {port: 8889, certificate: a, key: b}, operations: {port: 8889}}",
            f"api.port: 8889 is operations.port as well (0.0.0.0): {OWN_PORT}",
        ),
        ("grpc: {certificate: a}", "grpc.key: grpc.certificate needs the file of its private key"),
        ("grpc: {port: 1, certificate: a, key: b}", OPEN_GRPC),
        ("grpc: {port: 1, host: 10.0.0.1}", OPEN_GRPC),
        (
            "grpc: {port: 8888, anonymous: true}",
            f"grpc.port: 8888 is server.port as well (0.0.0.0 and 127.0.0.1): {OWN_GRPC_PORT}",
        ),
    ],
)
def test_listeners_that_cannot_be_are_refused(text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(text)
    assert caught.value.problems == (problem,)


@pytest.mark.parametrize(
    "text",
    [
        "grpc: {port: 1, certificate: a, key: b, clientCa: c}",
        "grpc: {port: 1, certificate: a, key: b, anonymous: true}",
        "grpc: {port: 1, host: 127.0.0.1}",
        "grpc: {port: 1, host: '::1'}",
        "grpc: {port: 1, host: localhost}",
        "grpc: {port: 0}",
    ],
)
def test_grpc_asks_for_certificates_unless_it_is_on_loopback_or_the_settings_say_otherwise(text: str) -> None:
    assert load(text).grpc.host


def test_question_within_filter_takes_at_most_half_of_its_time() -> None:
    """Filter's time begins before the question: the search needs the rest of it."""
    text = "controllers: [{name: a.example.com, url: 'http://a', timeoutSeconds: 2.5}]"
    with pytest.raises(SettingsError) as caught:
        load(text)
    problem = "controllers.0.timeoutSeconds: 2.5 is more than half of scheduling.deadlineSeconds, which is 4"
    assert caught.value.problems == (f"{problem}: the search needs the rest",)
    assert load(text, environment={"DRA_EXTENDER__SCHEDULING__DEADLINE_SECONDS": "5"}).controllers


def test_a_listener_may_come_from_several_sources() -> None:
    environment = {"DRA_EXTENDER__API__CERTIFICATE": "/tls/tls.crt", "DRA_EXTENDER__API__KEY": "/tls/tls.key"}
    api = load("api: {port: 8443, clientCa: /tls/ca.crt}", environment=environment).api
    assert (api.port, api.certificate, api.key, api.client_ca) == (8443, "/tls/tls.crt", "/tls/tls.key", "/tls/ca.crt")


def test_any_free_port_twice_is_two_ports() -> None:
    assert load("{server: {port: 0}, operations: {port: 0}}").server.port == 0


@given(
    st.sampled_from(sorted(keys())),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()) | st.just({"a": 1}),
)
def test_whatever_a_value_is_it_is_taken_or_refused_in_our_words(key: tuple[tuple[str, ...], str], value: JSON) -> None:
    path, _ = key
    try:
        load(flags={".".join(path): value})
    except SettingsError as error:
        for problem in error.problems:
            # Keys of a listener that do not fit together are named without a source.
            assert problem.startswith((f"flags: {'.'.join(path)}", f"{path[0]}."))
            assert "input" not in problem.lower()


def test_variables_that_kubernetes_sets_for_a_service_of_our_name_are_not_ours() -> None:
    environment = {"DRA_EXTENDER_PORT": "tcp://10.0.0.1:80", "DRA_EXTENDER_SERVICE_HOST": "10.0.0.1"}
    assert load(environment=environment) == Settings()


def test_a_variable_with_several_values_has_commas_between_them() -> None:
    environment = {
        "DRA_EXTENDER__SERVER__ALLOWED_HOSTS": "a.example, b.example",
        "DRA_EXTENDER__SCHEDULING__SCHEDULER_NAMES": "dra-scheduler",
    }
    settings = load(environment=environment)
    assert settings.server.allowed_hosts == ["a.example", "b.example"]
    assert settings.scheduling.scheduler_names == ["dra-scheduler"]


def test_a_wrong_value_among_several_is_named_with_its_variable() -> None:
    with pytest.raises(SettingsError) as caught:
        load(environment={"DRA_EXTENDER__SCHEDULING__SCHEDULER_NAMES": "a,b c"})
    assert caught.value.problems == (
        'environment: DRA_EXTENDER__SCHEDULING__SCHEDULER_NAMES: "b c" is not the name of a scheduler',
    )


def test_every_key_has_a_variable_and_a_description() -> None:
    documented = dict(keys())
    assert all(documented.values())
    assert variable(("server", "keepAliveSeconds")) == "DRA_EXTENDER__SERVER__KEEP_ALIVE_SECONDS"
    assert all(variable(path).startswith(ENVIRONMENT_PREFIX) for path in documented)


def test_printed_settings_load_as_the_same_settings() -> None:
    settings = load("{server: {port: 9, prefix: /x}, featureGates: {DRADeviceTaints: false}}")
    assert load(settings.as_yaml()) == settings
    listeners = {"server", "operations", "api", "grpc"}
    sections = listeners | {"cluster", "memory", "scheduling", "evictions", "autoscaler", "peers", "log", "tracing"}
    sections |= {"admissionChecks", "controllers", "featureGates", "schedulingGates", "usage"}
    assert set(yaml.safe_load(settings.as_yaml())) == sections


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load().server.port = 1


# Feature gates are as on the API server, unless the settings say otherwise.


OFF = dict.fromkeys(GATES, False)


def faulty(fault: Fault) -> FakeApi:
    """A server with a fault at its metrics."""

    def fault_for(request: HttpRequest) -> Fault:
        return fault if request.path == "/metrics" else HEALTHY

    return FakeApi(fault_for=fault_for)


TOLD: dict[str, tuple[Mapping[str, bool], str, Mapping[str, bool]]] = {
    "on and off": (DEFAULT_GATES | {"DRADeviceTaints": False}, "37", DEFAULT_GATES | {"DRADeviceTaints": False}),
    "gates that do not concern us": (DEFAULT_GATES | {"ContextualLogging": True}, "37", DEFAULT_GATES),
    "not known yet to an older server": ({"DRAAdminAccess": True}, "36", OFF | {"DRAAdminAccess": True}),
    "no longer known to a newer server": ({"DRADeviceTaints": False}, "40", DEFAULT_GATES | {"DRADeviceTaints": False}),
}


@pytest.mark.parametrize(("metrics", "minor", "gates"), TOLD.values(), ids=list(TOLD))
def test_the_gates_are_those_that_the_server_tells(
    metrics: Mapping[str, bool], minor: str, gates: Mapping[str, bool]
) -> None:
    fake = FakeApi(metrics=gate_metrics(metrics), version={"major": "1", "minor": minor}, chunk_sizes=(7, 50))
    assert run(server_gates(fake)) == ServerGates(gates)


NOT_TOLD = {
    "not allowed": (faulty(Fault(403, reason="Forbidden", message='cannot get path "/metrics"')), "cannot get path"),
    "no answer": (faulty(Fault(hangs=True)), f"GET /metrics: no answer within {GATES_SECONDS:g} s"),
    "no connection": (faulty(Fault(refused=True)), "connection refused"),
    "cut": (faulty(Fault(cut_after=20)), "connection reset"),
    "broken": (faulty(Fault(500)), "GET /metrics: outcome unknown: HTTP 500"),
    "without gates": (
        FakeApi(metrics=b"go_threads 12\n"),
        "GET /metrics: there is no metric kubernetes_feature_enabled",
    ),
    "other text": (FakeApi(metrics=b"<html>\xff"), "GET /metrics: there is no metric kubernetes_feature_enabled"),
}


@pytest.mark.parametrize(("fake", "problem"), NOT_TOLD.values(), ids=list(NOT_TOLD))
def test_a_server_that_does_not_tell_is_no_error(fake: FakeApi, problem: str) -> None:
    told = run(server_gates(fake))
    assert told.gates == {}
    assert problem in told.problem


def test_settings_go_before_the_gates_of_the_server() -> None:
    settings = load("featureGates: {DRADeviceTaints: false}")
    over = settings.over({"DRADeviceTaints": True, "DRADerivedAttributes": True, "DRAAdminAccess": False})
    assert over.features == Features(device_taints=False, derived_attributes=True, admin_access=False)
    assert over.server == settings.server


# config/scheduler.yaml and config/extender.yaml: complete, and in agreement with each other and with the service.


SETTINGS = load((CONFIG / "extender.yaml").read_text())
SCHEDULER: dict[str, Any] = yaml.safe_load((CONFIG / "scheduler.yaml").read_text())
EXTENDER: dict[str, Any] = SCHEDULER["extenders"][0]
PROFILE: dict[str, Any] = SCHEDULER["profiles"][0]


def test_the_file_shows_the_defaults_but_names_its_scheduler() -> None:
    assert SETTINGS.scheduling.scheduler_names == [each["schedulerName"] for each in SCHEDULER["profiles"]]
    scheduling = SETTINGS.scheduling.model_copy(update={"scheduler_names": []})
    assert SETTINGS.model_copy(update={"scheduling": scheduling}) == Settings()


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
