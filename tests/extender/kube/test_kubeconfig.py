"""Where the configuration is, and what is wrong with it: named by file and field."""

import asyncio
import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from allocator.tools import Fields
from extender.kube.api import ConnectError
from extender.kube.connection.connection import open_connection
from extender.kube.connection.credentials import (
    Configuration,
    CredentialPlugin,
    Origin,
    PluginCredential,
    find_origin,
    load_credentials,
    of_this_pod,
)
from tests.kit.certificates import Authority
from tests.kit.servers.canned import HTTPS, config_text


def test_the_file_that_is_named_comes_first_then_kubeconfig_then_the_pod_then_the_home(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    usual = tmp_path / ".kube" / "config"
    usual.touch()
    home = {"HOME": str(tmp_path)}
    pod = {**home, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    variable = {**pod, "KUBECONFIG": "a:b"}
    assert find_origin(Path("f"), "c", variable) == Origin("f", "c")
    assert find_origin(None, "c", variable) == Origin("a:b", "c")
    assert find_origin(None, "", pod) == Origin()
    assert find_origin(None, "c", home) == Origin(str(usual), "c")


def test_without_any_configuration_all_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConnectError, match=r"no --kubeconfig, KUBECONFIG is not set, this is no pod, and there is no /"
    ):
        find_origin(None, "", {"HOME": str(tmp_path)})


PLUGIN = "apiVersion: client.authentication.k8s.io/v1"


def printing(status: str) -> str:
    """A kubeconfig with a credential plugin that prints a status, whatever it is."""
    printed = f'{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {status}}}'
    return config_text(HTTPS, f"exec: {{{PLUGIN}, command: echo, args: ['{printed}']}}")


BROKEN = {
    "not there": (None, "no such file"),
    "empty": ("", "is empty: expected clusters, users, contexts and current-context"),
    "all comments": ("# nothing", "is empty: expected clusters, users, contexts and current-context"),
    "two documents": ("a: 1\n---\nb: 1", "expected one document, not 2"),
    "not YAML": ("a: [", "not YAML: line 1: did not find expected node content"),
    "a list": ("[1, 2]", "expected keys and values at the top, not [1, 2]"),
    "a text": ("kubeconfig", 'expected keys and values at the top, not "kubeconfig"'),
    "no context is the current one": (config_text(HTTPS).partition("\n")[2], "current-context: is required"),
    "a current context of another type": ("current-context: 7", "current-context: 7 is not a string"),
    "no contexts": ("current-context: x", 'current-context: "x" is not one of contexts: there are none'),
    "contexts that are no list": (
        "{current-context: x, contexts: {x: 1}}",
        'contexts: {"x": 1} is not a list; {path}: current-context: "x" is not one of contexts: there are none',
    ),
    "an unknown context": (
        config_text(HTTPS).replace("current-context: x", "current-context: y"),
        'current-context: "y" is not one of contexts (known: x)',
    ),
    "an unknown cluster": (
        config_text(HTTPS).replace("cluster: c", "cluster: prod"),
        'contexts[x].context.cluster: "prod" is not one of clusters (known: c)',
    ),
    "an unknown user": (
        config_text(HTTPS).replace("user: u}", "user: me}"),
        'contexts[x].context.user: "me" is not one of users (known: u)',
    ),
    "a context without a user": (
        config_text(HTTPS).replace(", user: u}", "}"),
        "contexts[x].context.user: is required",
    ),
    "a context without a name": (
        config_text(HTTPS).replace("contexts: [{name: x,", "contexts: [{"),
        'contexts[0].name: is required; {path}: current-context: "x" is not one of contexts: there are none',
    ),
    "no context in the context": (
        "{current-context: x, contexts: [{name: x}]}",
        "contexts[x].context.cluster: is required; {path}: contexts[x].context.user: is required",
    ),
    "no server": (config_text(""), "clusters[c].cluster.server: is required"),
    "a server that is a number": (config_text("server: 6443"), "clusters[c].cluster.server: 6443 is not a string"),
    "a server without a scheme": (
        config_text("server: 'localhost:6443'"),
        'clusters[c].cluster.server: "localhost:6443" is not an address such as https://10.0.0.1:6443',
    ),
    "a server whose port is none": (
        config_text("server: 'https://localhost:port'"),
        'clusters[c].cluster.server: "https://localhost:port" is not an address such as https://10.0.0.1:6443',
    ),
    "a flag of another type": (
        config_text(f"{HTTPS}, insecure-skip-tls-verify: 1"),
        "clusters[c].cluster.insecure-skip-tls-verify: 1 is not true or false",
    ),
    "no certificate": (
        config_text(f"{HTTPS}, certificate-authority: /nowhere"),
        "clusters[c].cluster.certificate-authority: /nowhere: cannot be read: No such file or directory",
    ),
    "a certificate that is a folder": (
        config_text(f"{HTTPS}, certificate-authority: /"),
        "clusters[c].cluster.certificate-authority: /: cannot be read: Is a directory",
    ),
    "a certificate that is no base64": (
        config_text(f"{HTTPS}, certificate-authority-data: Zm9"),
        "clusters[c].cluster.certificate-authority-data: is not base64",
    ),
    "a bad certificate": (
        config_text(f"{HTTPS}, certificate-authority-data: Zm9v"),
        "certificate-authority: is no certificate: not PEM",
    ),
    "a bad client certificate": (
        config_text(HTTPS, "client-certificate-data: Zm9v, client-key-data: Zm9v"),
        "client-certificate and client-key: are no certificate and its key: not PEM",
    ),
    "a client certificate that is not there": (
        config_text(HTTPS, "client-certificate: crt, client-key-data: Zm9v"),
        "users[u].user.client-certificate: crt: cannot be read: No such file or directory",
    ),
    "a token of another type": (config_text(HTTPS, "token: 7"), "users[u].user.token: 7 is not a string"),
    "a token file that is not there": (
        config_text(HTTPS, "tokenFile: token"),
        "users[u].user.tokenFile: token: cannot be read: No such file or directory",
    ),
    "a plugin without a version": (
        config_text(HTTPS, "exec: {command: x, args: [1]}"),
        "users[u].user.exec.apiVersion: is required; {path}: users[u].user.exec.args[0]: 1 is not a string",
    ),
    "a plugin's variable without a value": (
        config_text(HTTPS, f"exec: {{{PLUGIN}, command: x, env: [{{name: A}}]}}"),
        "users[u].user.exec.env[0].value: is required",
    ),
    "a plugin that is not there": (
        config_text(HTTPS, f"exec: {{{PLUGIN}, command: /nowhere}}"),
        "credential plugin /nowhere: /nowhere: No such file or directory",
    ),
    "a plugin that fails": (
        config_text(HTTPS, f"exec: {{{PLUGIN}, command: 'false'}}"),
        "credential plugin false: exec: process returned 1",
    ),
    "a plugin that prints nothing": (
        config_text(HTTPS, f"exec: {{{PLUGIN}, command: 'true'}}"),
        "credential plugin true: exec: failed to decode process output: Expecting value: line 1 column 1 (char 0)",
    ),
    "a plugin that prints a number": (
        config_text(HTTPS, f"exec: {{{PLUGIN}, command: echo, args: ['7']}}"),
        "credential plugin echo: what it gives is no credential",
    ),
    "a plugin that gives no status": (printing("null"), "credential plugin echo: what it gives is no credential"),
    "a plugin that gives nothing": (
        printing("{}"),
        "credential plugin echo: it gives neither status.token nor status.clientCertificateData with its key",
    ),
    "a plugin that gives half a certificate": (
        printing('{"clientCertificateData": "x"}'),
        "credential plugin echo: it gives neither status.token nor status.clientCertificateData with its key",
    ),
}


@pytest.mark.parametrize(("text", "problem"), BROKEN.values(), ids=list(BROKEN))
async def test_a_kubeconfig_that_can_not_be_used_is_named(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConnectError) as caught:
        async with open_connection(Origin(str(path))):
            pass
    assert str(caught.value) == f"{path}: {problem.replace('{path}', str(path))}"


async def test_a_context_that_is_not_there_is_named_as_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(config_text(HTTPS))
    with pytest.raises(ConnectError) as caught:
        await load_credentials(Origin(str(path), "y"))
    assert str(caught.value) == f'{path}: --context: "y" is not one of contexts (known: x)'


async def test_of_several_files_the_first_to_say_something_counts(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n")
    other.write_text(config_text(HTTPS).replace("current-context: x", "current-context: y"))
    credentials = await load_credentials(Origin(os.pathsep.join(map(str, (one, tmp_path / "missing", other)))))
    assert (credentials.url, credentials.headers) == ("https://127.0.0.1", {"Authorization": "Bearer t"})


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make a key with")
async def test_a_key_that_needs_a_password_is_refused_not_asked_for_on_the_terminal(tmp_path: Path) -> None:
    make = "openssl req -x509 -newkey rsa:2048 -subj /CN=x -keyout key -out crt -passout pass:secret"
    made = await asyncio.create_subprocess_exec(*make.split(), cwd=tmp_path, stderr=asyncio.subprocess.DEVNULL)
    assert await made.wait() == 0
    path = tmp_path / "kubeconfig"
    path.write_text(config_text(HTTPS, "client-certificate: crt, client-key: key"))
    with pytest.raises(ConnectError, match="client-key: is encrypted; a key that needs a password can't be used"):
        await load_credentials(Origin(str(path)))


async def test_outside_of_a_pod_there_is_no_in_cluster_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(
        ConnectError,
        match="in-cluster configuration: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set",
    ):
        async with open_connection(Origin()):
            pass


def test_a_pod_has_the_token_of_its_account_and_the_authority_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "ca.crt").write_text("PEM")
    pod = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert of_this_pod(pod, tmp_path) == Configuration("https://[fd00::1]:443", "Bearer t", b"PEM")


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "cannot be read: No such file or directory"), ("\n", "is empty")]
)
def test_a_pod_without_a_token_has_no_credentials(tmp_path: Path, content: str | None, problem: str) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ValueError, match=f"token: {problem}"):
        of_this_pod(pod, tmp_path)


# --- plugins -------------------------------------------------------------------------------------------------


async def test_a_plugin_is_asked_again_shortly_before_its_credential_ends() -> None:
    times = iter([3299, 3300])  # seconds; the credential ends after an hour
    plugin = CredentialPlugin(
        Fields({"command": "date", "args": [DATED], "apiVersion": VERSION}, "", []),
        now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(times)),
    )
    found = [await plugin.credential() for _ in range(3)]
    assert found[0] is found[1]
    assert found[1] is not found[2]


VERSION = "client.authentication.k8s.io/v1"
DATED = f'+{{"apiVersion": "{VERSION}", "status": {{"token": "t", "expirationTimestamp": "2026-01-01T01:00:00Z"}}}}'
"""A format of `date`: a credential."""


async def test_a_plugin_may_give_a_certificate_with_its_key() -> None:
    authority = Authority("x")
    status = {"clientCertificateData": authority.pem.decode(), "clientKeyData": "key"}
    printed = json.dumps({"apiVersion": VERSION, "status": status})
    fields = Fields({"command": "echo", "args": [printed], "apiVersion": VERSION}, "", [])
    found = await CredentialPlugin(fields).credential()
    assert found == PluginCredential("", authority.pem, b"key", None)
