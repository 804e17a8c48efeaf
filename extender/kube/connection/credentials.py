"""Address and credentials of an API server, from a kubeconfig or from the pod we run in; renewed from time to time.

Tokens, passwords and certificates are read here, and credential plugins are run: programs that give a token or a client
certificate (``exec`` in a kubeconfig). Identity providers (``auth-provider``), which kubectl has given up for plugins,
are asked by kubernetes-asyncio.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import asyncio
import base64
import importlib
import json
import os
import ssl
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from allocator.tools import Fields
from extender.kube.api import ConnectError
from extender.kube.certificates import trusting
from extender.kube.connection.kubeconfig import ChosenContext, choose
from extender.tools.files import UnreadableError, read_bytes

_EARLY: Final = timedelta(minutes=5)
"""A credential that ends so soon is asked for again."""

_NO_CREDENTIAL: Final = "what it gives is no credential"


class PluginError(Exception):
    """A plugin gives no credential; the text says why."""


@dataclass(frozen=True, slots=True)
class PluginCredential:
    """The credential of a plugin: a token, or a client certificate with its key.

    Attributes:
        certificate, key: PEM; empty: none.
        ends: when it ends; None: it is asked for each time.
    """

    token: str
    certificate: bytes
    key: bytes
    ends: datetime | None


class CredentialPlugin:
    """Runs a program. Its credential is used until shortly before it ends.

    Args:
        fields: of the kubeconfig, checked: command, arguments, variables and version.
        now: the time.
    """

    def __init__(self, fields: Fields, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.command = fields.text("command")
        self._arguments = fields.texts("args")
        self._variables = {each.text("name"): each.text("value") for each in fields.children("env")}
        self._version = fields.text("apiVersion")
        self._now = now
        self._known: PluginCredential | None = None

    async def credential(self) -> PluginCredential:
        """The credential that is in force.

        Raises:
            PluginError: the program fails, or gives no credential.
            OSError: it cannot be run.
        """
        known = self._known
        if known is None or known.ends is None or known.ends - _EARLY <= self._now():
            known = self._known = _read(await self._output(), self._version)
        return known

    async def _output(self) -> bytes:
        told = {
            "apiVersion": self._version,
            "kind": "ExecCredential",
            "spec": {"interactive": sys.stdout.isatty()},
        }
        variables = {**os.environ, **self._variables, "KUBERNETES_EXEC_INFO": json.dumps(told)}
        process = await asyncio.create_subprocess_exec(
            self.command, *self._arguments, env=variables, stdout=PIPE, stderr=PIPE
        )
        output, errors = await process.communicate()
        if process.returncode:
            said = f". {errors.decode(errors='replace').strip()}" if errors.strip() else ""
            raise PluginError(f"exec: process returned {process.returncode}{said}")
        return output


def _read(output: bytes, version: str) -> PluginCredential:
    try:
        answer = json.loads(output)
    except ValueError as error:
        raise PluginError(f"exec: failed to decode process output: {error}") from error
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict):
        raise PluginError(_NO_CREDENTIAL)
    if answer.get("apiVersion") != version:
        raise PluginError(f"exec: plugin api version {answer.get('apiVersion')} does not match {version}")
    names = ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp")
    token, certificate, key, ends = (_text(status, name) for name in names)
    if not token and not (certificate and key):
        raise PluginError("it gives neither status.token nor status.clientCertificateData with its key")
    try:
        ending = datetime.fromisoformat(ends) if ends else None
        # A time without a zone is no time of the API.
        return PluginCredential(token, certificate.encode(), key.encode(), ending and ending.astimezone(UTC))
    except ValueError as error:
        raise PluginError(f"status.expirationTimestamp: {error}") from error


def _text(status: Mapping[str, object], name: str) -> str:
    value = status.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise PluginError(_NO_CREDENTIAL)
    return value


_IN_CLUSTER: Final = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod has the token of its service account, and the authority of the API server."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The address of an API server, and who we are there, as it was read last.

    Attributes:
        url: of the API server, without a slash at the end.
        authorization: the header with a token or a password; empty: none.
        authority: PEM of whom to trust; empty: whom the machine trusts.
        certificate, key: PEM of the client certificate; empty: none.
        is_verified: whether the server has to show a certificate that is trusted.
        server_name: the host name in the server's certificate; empty: that of the URL.
        proxy: its URL; empty: none.
    """

    url: str
    authorization: str = ""
    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = b""
    is_verified: bool = True
    server_name: str = ""
    proxy: str = ""


_Read = Callable[[], Awaitable[Configuration]]


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of the address and the credentials of an API server.

    Attributes:
        files: kubeconfig files, separated as in KUBECONFIG; empty: those of the pod we run in.
        context: of the kubeconfig; empty: its current one.
    """

    files: str = ""
    context: str = ""

    def __str__(self) -> str:
        if not self.files:
            return "in-cluster configuration"
        return f"{self.files}, context {self.context}" if self.context else self.files


def find_origin(kubeconfig: Path | None, context: str, environ: Mapping[str, str]) -> Origin:
    """The file that is named, else KUBECONFIG, else the pod we run in, else ``~/.kube/config``.

    Raises:
        ConnectError: there is none of these.
    """
    if kubeconfig is not None:
        return Origin(str(kubeconfig), context)
    if environ.get("KUBECONFIG"):
        return Origin(environ["KUBECONFIG"], context)
    if environ.get(_IN_CLUSTER[0]):
        return Origin()
    usual = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if usual.exists():
        return Origin(str(usual), context)
    raise ConnectError(
        f"no API server to connect to: no --kubeconfig, KUBECONFIG is not set, this is no pod, and there is no {usual}"
    )


class Credentials:
    """Address, certificates and tokens, and how to renew them.

    Args:
        configuration: as it was read first.
        read: reads it anew; raises ConnectError.
    """

    def __init__(self, configuration: Configuration, read: _Read) -> None:
        self._configuration = configuration
        self._read = read
        self._lock = asyncio.Lock()
        self.tls = _tls(configuration) if self.url.startswith("https:") else None

    @property
    def url(self) -> str:
        """The address of the API server, without a slash at the end."""
        return self._configuration.url

    @property
    def request_options(self) -> dict[str, Any]:
        """Options of aiohttp for each request: a proxy, and the host name in the server's certificate."""
        found = {"proxy": self._configuration.proxy, "server_hostname": self._configuration.server_name}
        return {name: value for name, value in found.items() if value}

    @property
    def headers(self) -> Mapping[str, str]:
        """The header with a token or password, if there is one."""
        authorization = self._configuration.authorization
        return {"Authorization": authorization} if authorization else {}

    async def renew(self, refused: Mapping[str, str] | None = None) -> None:
        """Read files and run plugins again; new connections use new certificates, and trust new authorities.

        Args:
            refused: headers that the server refused; if others are in use already, nothing is done.

        Raises:
            ConnectError: the credentials cannot be read; the old ones stay in use.
        """
        async with self._lock:
            if refused is not None and refused != self.headers:
                return
            configuration = await self._read()
            try:
                if self.tls is not None:
                    _load_authority(self.tls, configuration)
                    _load_certificate(self.tls, configuration)
            except ValueError as error:
                raise ConnectError(str(error)) from error
            self._configuration = configuration


async def load_credentials(origin: Origin) -> Credentials:
    """Read address and credentials. Raises ConnectError: all that cannot be read or used."""
    if origin.files:
        choice = await asyncio.to_thread(choose, origin.files, origin.context)
        source, read = _reader(origin, choice)
    else:
        source, read = str(origin), partial(asyncio.to_thread, of_this_pod, os.environ)

    async def explained() -> Configuration:
        try:
            return await read()
        except (PluginError, UnreadableError, OSError, ValueError) as error:
            raise ConnectError(f"{source}: {_reason(error)}") from error

    try:
        return Credentials(await explained(), explained)
    except ValueError as error:
        raise ConnectError(f"{origin}: {error}") from error


def of_this_pod(environ: Mapping[str, str], account: Path = _ACCOUNT) -> Configuration:
    """What Kubernetes gives each pod. Raises ValueError: this is no pod, or has no service account."""
    host, port = (environ.get(name, "") for name in _IN_CLUSTER)
    if not host or not port:
        raise ValueError(f"{' and '.join(_IN_CLUSTER)} are not both set")
    address = f"[{host}]" if ":" in host else host
    token, authority = (_content(account / name) for name in ("token", "ca.crt"))
    return Configuration(f"https://{address}:{port}", f"Bearer {token.decode().strip()}", authority)


def _content(path: Path) -> bytes:
    """What is in a file. Raises ValueError: it cannot be read, or is empty."""
    try:
        content = read_bytes(path)
    except UnreadableError as error:
        raise ValueError(f"{path}: {error}") from error
    if not content.strip():
        raise ValueError(f"{path}: is empty")
    return content


def _reader(origin: Origin, choice: ChosenContext) -> tuple[str, _Read]:
    """What errors are about, and the function that reads a configuration."""
    user = choice.user.fields
    if user.has("auth-provider"):
        token = _provider(origin.files, choice.context)

        async def of_provider() -> Configuration:
            return await asyncio.to_thread(_configured, choice, await token())

        return str(origin), of_provider
    if not user.has("exec"):
        return str(origin), partial(asyncio.to_thread, _configured, choice)
    plugin = CredentialPlugin(user.child("exec"))

    async def of_plugin() -> Configuration:
        found = await plugin.credential()
        configuration = await asyncio.to_thread(_configured, choice, found.token and f"Bearer {found.token}")
        if found.certificate and found.key:
            configuration = replace(configuration, certificate=found.certificate, key=found.key)
        return configuration

    return f"{origin}: credential plugin {plugin.command}", of_plugin


def _configured(choice: ChosenContext, authorization: str = "") -> Configuration:
    """What the files hold now; they have been checked.

    Args:
        choice: of a kubeconfig.
        authorization: the header that a plugin or a provider has given.

    Raises:
        UnreadableError: a file is there no more.
    """
    cluster, user = choice.cluster, choice.user
    return Configuration(
        cluster.fields.text("server").rstrip("/"),
        authorization or _authorization(choice),
        cluster.content("certificate-authority"),
        user.content("client-certificate"),
        user.content("client-key"),
        not cluster.fields.flag("insecure-skip-tls-verify"),
        cluster.fields.text("tls-server-name"),
        cluster.fields.text("proxy-url"),
    )


def _authorization(choice: ChosenContext) -> str:
    """The header of a token, the token of a file, or a password; empty: the user has none of these."""
    user = choice.user.fields
    token = user.text("token")
    if not token and user.has("tokenFile"):
        path = user.text("tokenFile")
        token = _content(choice.user.folder / path).decode().strip()
    if token:
        return f"Bearer {token}"
    if not user.has("username") or not user.has("password"):
        return ""
    pair = f"{user.text('username')}:{user.text('password')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


_PROVIDER_ERRORS: Final = (TypeError, LookupError, AttributeError, AssertionError)
"""The errors that kubernetes-asyncio raises for what is no credential; their text does not help users."""


def _provider(files: str, context: str) -> Callable[[], Awaitable[str]]:
    """A function that returns the header of an identity provider's token; kubernetes-asyncio asks the provider."""
    # It imports a thousand generated modules in one second and 40 MB: only for those who need it.
    client, config = (importlib.import_module(f"kubernetes_asyncio.{name}") for name in ("client", "config"))
    configuration = client.Configuration()

    async def token() -> str:
        try:
            await config.load_kube_config(
                config_file=files, context=context, client_configuration=configuration, persist_config=False
            )
        except (config.ConfigException, *_PROVIDER_ERRORS) as error:
            is_slip = isinstance(error, _PROVIDER_ERRORS)
            raise ValueError("what it gives is no credential" if is_slip else str(error)) from error
        found: str = configuration.api_key.get("BearerToken", "")
        return found

    return token


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _tls(configuration: Configuration) -> ssl.SSLContext:
    try:
        context = trusting(pem=_pem(configuration.authority) or None)
    except OSError as error:
        raise _no_authority(error) from error
    if not configuration.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_certificate(context, configuration)
    return context


def _load_authority(context: ssl.SSLContext, configuration: Configuration) -> None:
    """Trust whom the file names now, too. Whom it named before stays trusted: a server may show such a certificate."""
    try:
        if configuration.authority:
            context.load_verify_locations(cadata=_pem(configuration.authority))
    except OSError as error:
        raise _no_authority(error) from error


def _pem(content: bytes) -> str:
    """Certificates as text: comments between them may have any characters."""
    return content.decode("ascii", errors="ignore")


def _no_authority(error: OSError) -> ValueError:
    return ValueError(f"certificate-authority: is no certificate: {_tls_reason(error)}")


def _load_certificate(context: ssl.SSLContext, configuration: Configuration) -> None:
    if not configuration.certificate:
        return
    try:
        with _in_file(configuration.certificate) as certificate, _in_file(configuration.key) as key:
            context.load_cert_chain(certificate, key, password=_no_password)
    except OSError as error:
        raise ValueError(
            f"client-certificate and client-key: are no certificate and its key: {_tls_reason(error)}"
        ) from error


@contextmanager
def _in_file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, for OpenSSL; nobody else may read it, and it is gone in the end."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name


def _tls_reason(error: OSError) -> str:
    """OpenSSL's reason; for input that is not PEM, OpenSSL names only a place in its code."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "not PEM"
    return error.strerror or str(error)


def _no_password() -> str:
    """Without this, OpenSSL asks for a password on the terminal."""
    raise ValueError("client-key: is encrypted; a key that needs a password can't be used")
