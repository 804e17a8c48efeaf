"""Settings: where they come from, which wins, and what is refused in which words."""

import pytest
import yaml
from pydantic import ValidationError

from allocator.features import Features
from extender.settings import ENVIRONMENT_PREFIX, Settings, SettingsError, keys, load, variable


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
            "prot: unknown key (known: autoscaler, cluster, featureGates, log, operations, scheduling, server)",
        ),
        ("server: {prot: 1}", 'server.prot: unknown key, did you mean "port"?'),
        ("server: {keepaliveSeconds: 99}", 'server.keepaliveSeconds: unknown key, did you mean "keepAliveSeconds"?'),
        (
            "server: {keep_alive_seconds: 99}",
            'server.keep_alive_seconds: unknown key, did you mean "keepAliveSeconds"?',
        ),
        ("server: {prefix: /autoscaler/}", 'server.prefix: "/autoscaler/" is where the verbs for autoscalers are'),
        ("autoscaler: {sessions: 0}", "autoscaler.sessions: input should be greater than or equal to 1, not 0"),
        ("server: {port: 70000}", "server.port: input should be less than or equal to 65535, not 70000"),
        (
            "server: {port: http}",
            "server.port: input should be a valid integer, unable to parse string as an integer, not 'http'",
        ),
        ("server: {keepAliveSeconds: 60}", "server.keepAliveSeconds: input should be greater than 90, not 60"),
        ("server: {prefix: scheduler}", 'server.prefix: "scheduler" is not a URL path such as "/scheduler"'),
        ("scheduling: {policy: bestfit}", 'scheduling.policy: unknown policy "bestfit", did you mean "best-fit"?'),
        (
            "scheduling: {maxSeconds: .inf}",
            "scheduling.maxSeconds: input should be a valid number, unable to parse string as a number, not '.inf'",
        ),
        (
            "featureGates: {DRAAdminAcces: true}",
            'featureGates: unknown feature gate "DRAAdminAcces", did you mean "DRAAdminAccess"?',
        ),
        ("log: {format: xml}", "log.format: input should be 'auto', 'console' or 'json', not 'xml'"),
        ("- a", "expected keys and values at the top, not list"),
        ("server:\n  port: 1\n  port: 2", 'not YAML: line 3: the key "port" is there twice'),
        ("log: {}\n---\nlog: {}", "expected one document, not 2"),
        ("\na: [", "not YAML: line 2: did not find expected node content"),
        ("a: !b", "not YAML: line 1: could not determine a constructor for the tag '!b'"),
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


def test_variables_that_kubernetes_sets_for_a_service_of_our_name_are_not_ours() -> None:
    environment = {"DRA_EXTENDER_PORT": "tcp://10.0.0.1:80", "DRA_EXTENDER_SERVICE_HOST": "10.0.0.1"}
    assert load(environment=environment) == Settings()


def test_every_key_has_a_variable_and_a_description() -> None:
    documented = dict(keys())
    assert all(documented.values())
    assert variable(("server", "keepAliveSeconds")) == "DRA_EXTENDER__SERVER__KEEP_ALIVE_SECONDS"
    assert all(variable(path).startswith(ENVIRONMENT_PREFIX) for path in documented)


def test_printed_settings_load_as_the_same_settings() -> None:
    settings = load("{server: {port: 9, prefix: /x}, featureGates: {DRADeviceTaints: false}}")
    assert load(settings.as_yaml()) == settings
    sections = {"server", "operations", "cluster", "scheduling", "autoscaler", "log", "featureGates"}
    assert set(yaml.safe_load(settings.as_yaml())) == sections


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load().server.port = 1
