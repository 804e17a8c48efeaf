"""Address and credentials of an API server, from a kubeconfig or from the pod we run in; renewed from time to time.

kubernetes-asyncio reads the configuration: tokens, certificates, exec plugins, identity providers. It checks little, so
a kubeconfig is checked before: a missing field or a wrong type is named by file and field. Several files are merged as
in kubectl: the first entry of each name counts, and the first current-context.
"""

import asyncio
import base64
import importlib
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

import yaml

from allocator.tools import Fields, shown
from extender.kube.api import ConnectError
from extender.tools.files import UnreadableError, read_bytes, read_text
from extender.tools.user_error import suggestion
from extender.tools.yamltext import single_mapping

_LISTS: Final[Mapping[str, str]] = {"contexts": "context", "clusters": "cluster", "users": "user"}
"""The lists of a kubeconfig, and the field of their entries beside the name."""

_CURRENT: Final = "current-context"


@dataclass(frozen=True, slots=True)
class ChosenContext:
    """The chosen part of a kubeconfig.

    Attributes:
        context: name of the context.
        plugin: the command of the user's credential plugin; empty: none.
        namespace: that of the context; empty: none is given.
    """

    context: str
    plugin: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    top: Fields


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named entry of a list, and the folder of its file, where relative paths start."""

    fields: Fields
    folder: Path


def choose(files: str, context: str) -> ChosenContext:
    """Choose a context, and check what will be used of the files.

    Args:
        files: paths, separated as in KUBECONFIG; missing files are ignored.
        context: its name; empty: the current one.

    Raises:
        ConnectError: all problems, each with file, field and value.
    """
    paths = [Path(path).expanduser() for path in files.split(os.pathsep) if path]
    found = [_read(path) for path in paths if os.access(path, os.F_OK)]
    if not found:
        raise ConnectError(f"{files}: no such file")
    choice = _chosen(found, context)
    problems = [f"{file.path}: {problem}" for file in found for problem in file.top.problems]
    if problems:
        raise ConnectError(*problems)
    return choice


def _read(path: Path) -> _File:
    try:
        tree = single_mapping(read_text(path))
    except (UnreadableError, ValueError) as error:
        raise ConnectError(f"{path}: {error}") from error
    if tree is None:
        raise ConnectError(f"{path}: is empty: expected clusters, users, contexts and current-context")
    return _File(path, Fields(tree, "", []))


def _chosen(files: list[_File], context: str) -> ChosenContext:
    """The chosen context, checked; problems are noted in the files."""
    contexts, clusters, users = (_entries(files, plural) for plural in _LISTS)
    top = next((file.top for file in files if file.top.has(_CURRENT)), files[0].top)
    name = context or top.required_text(_CURRENT)
    chosen = _find(contexts, name, "contexts", top, "--context" if context else _CURRENT)
    if chosen is None:
        return ChosenContext(name)
    cluster, user = (
        _find(entries, chosen.fields.required_text(field), f"{field}s", chosen.fields, field)
        for field, entries in (("cluster", clusters), ("user", users))
    )
    if cluster is not None:
        _check_cluster(cluster)
    namespace = chosen.fields.text("namespace")
    if user is None:
        return ChosenContext(name, namespace=namespace)
    _check_user(user)
    return ChosenContext(name, user.fields.child("exec").text("command"), namespace)


def _entries(files: list[_File], plural: str) -> Mapping[str, _Entry]:
    """The entries of a list of all files, by name."""
    found: dict[str, _Entry] = {}
    for file in files:
        for each in file.top.children(plural):
            name, field = each.required_text("name"), _LISTS[plural]
            if name and name not in found:
                inner = Fields(each.data, f"{plural}[{name}]", file.top.problems)
                found[name] = _Entry(inner.child(field), file.path.parent)
    return found


def _find(entries: Mapping[str, _Entry], name: str, plural: str, where: Fields, field: str) -> _Entry | None:
    """The entry that a field names; None if it is missing, which is noted."""
    if name and name not in entries:
        known = suggestion(name, entries) if entries else ": there are none"
        where.problem(field, f"{shown(name)} is not one of {plural}{known}")
    return entries.get(name)


def _check_cluster(cluster: _Entry) -> None:
    fields = cluster.fields
    server = fields.required_text("server")
    if server and not _is_address(server):
        fields.problem("server", f"{shown(server)} is not an address such as https://10.0.0.1:6443")
    fields.flag("insecure-skip-tls-verify")
    _check_texts(fields, "tls-server-name", "proxy-url")
    _check_content(cluster, "certificate-authority")


def _check_user(user: _Entry) -> None:
    fields = user.fields
    _check_texts(fields, "token", "username", "password")
    _check_content(user, "client-certificate")
    _check_content(user, "client-key")
    if not fields.has("token"):
        _check_file(user, "tokenFile")
    plugin = fields.child_or_none("exec")
    if plugin is not None:
        plugin.required_text("command")
        plugin.required_text("apiVersion")
        plugin.texts("args")
        for variable in plugin.children("env"):
            variable.required_text("name")
            if not variable.has("value"):
                variable.problem("value", "is required")
            _check_texts(variable, "value")
    provider = fields.child_or_none("auth-provider")
    if provider is not None:
        provider.required_text("name")


def _check_texts(fields: Fields, *names: str) -> None:
    for name in names:
        fields.text(name)


def _check_content(entry: _Entry, name: str) -> None:
    """Check content that is given in base64, or as a file."""
    inline = f"{name}-data"
    data = entry.fields.text(inline)
    if not entry.fields.has(inline):
        _check_file(entry, name)
    try:
        base64.standard_b64decode(data)
    except ValueError:
        entry.fields.problem(inline, "is not base64")


def _check_file(entry: _Entry, name: str) -> None:
    path = entry.fields.text(name)
    try:
        if path:
            read_bytes(entry.folder / path)
    except UnreadableError as error:
        entry.fields.problem(name, f"{path}: {error}")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
_LOADER_ERRORS: Final = (OSError, yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""The errors that kubernetes-asyncio raises for invalid input, besides its own error."""

_SLIPS: Final = (TypeError, LookupError, AttributeError, AssertionError)
"""The errors whose text does not help users."""

_T = TypeVar("_T")

_Reload = Callable[[], Awaitable[None]]


class _Configuration(Protocol):
    """The part of kubernetes-asyncio's configuration that is used here."""

    host: str
    api_key: dict[str, str]
    ssl_ca_cert: str | None
    cert_file: str | None
    key_file: str | None
    verify_ssl: bool
    tls_server_name: str | None
    proxy: str | None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the address and the credentials of an API server come from.

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
    if environ.get(_IN_CLUSTER):
        return Origin()
    usual = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if usual.exists():
        return Origin(str(usual), context)
    raise ConnectError(
        f"no API server to connect to: no --kubeconfig, KUBECONFIG is not set, this is no pod, and there is no {usual}"
    )


class Credentials:
    """Address, certificates and tokens, and how to renew them."""

    def __init__(self, configuration: _Configuration, reload: _Reload) -> None:
        self._configuration = configuration
        self._reload = reload
        self._lock = asyncio.Lock()
        self.tls = _tls(configuration) if self.url.startswith("https:") else None

    @property
    def url(self) -> str:
        """Of the API server, without a slash at the end."""
        url: str = self._configuration.host
        return url.rstrip("/")

    @property
    def request_options(self) -> dict[str, Any]:
        """Options of aiohttp for each request: a proxy, and the host name in the server's certificate."""
        found = {"proxy": self._configuration.proxy, "server_hostname": self._configuration.tls_server_name}
        return {name: value for name, value in found.items() if value}

    @property
    def headers(self) -> Mapping[str, str]:
        """The header with a token or password, if there is one."""
        token = self._configuration.api_key.get("BearerToken")
        return {"Authorization": token} if token else {}

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
            await self._reload()
            try:
                if self.tls is not None:
                    _load_authority(self.tls, self._configuration)
                    _load_certificate(self.tls, self._configuration)
            except ValueError as error:
                raise ConnectError(str(error)) from error


async def load_credentials(origin: Origin) -> Credentials:
    """Read address and credentials. Raises ConnectError: all that cannot be read or used."""
    # It imports a thousand generated modules in one second and 40 MB: only if a connection is needed.
    client = importlib.import_module("kubernetes_asyncio.client")
    config = importlib.import_module("kubernetes_asyncio.config")
    configuration: _Configuration = client.Configuration()
    choice = await asyncio.to_thread(choose, origin.files, origin.context) if origin.files else ChosenContext("")
    source = f"{origin}: credential plugin {choice.plugin}" if choice.plugin else str(origin)
    failures = (config.ConfigException, *_LOADER_ERRORS)

    async def explained(load: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await load()
        except failures as error:
            raise ConnectError(f"{source}: {_reason(error)}") from error

    reload = await explained(partial(_load, config, configuration, origin, choice))
    if choice.plugin and not configuration.api_key and not configuration.cert_file:
        raise ConnectError(f"{source}: it gives neither status.token nor status.clientCertificateData")
    try:
        return Credentials(configuration, partial(explained, reload))
    except ValueError as error:
        raise ConnectError(f"{origin}: {error}") from error


async def _load(config: ModuleType, configuration: _Configuration, origin: Origin, choice: ChosenContext) -> _Reload:
    """Fill the configuration; returns a function that does it again."""
    if not origin.files:

        async def reload() -> None:
            await asyncio.to_thread(config.load_incluster_config, client_configuration=configuration)

        await reload()
        return reload
    loader = await config.load_kube_config(
        config_file=origin.files,
        context=choice.context,
        client_configuration=configuration,
        persist_config=False,
    )
    return partial(loader.load_and_set, configuration)


def _reason(error: Exception) -> str:
    """The reason for users: not the text of an internal error of kubernetes-asyncio."""
    if isinstance(error, _SLIPS):
        return "what it gives is no credential"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _tls(configuration: _Configuration) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    except OSError as error:
        raise _no_authority(error) from error
    # Clusters' own certificates may lack extensions that newer Pythons require and kubectl does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_certificate(context, configuration)
    return context


def _load_authority(context: ssl.SSLContext, configuration: _Configuration) -> None:
    """Trust whom the file names now, too. Whom it named before stays trusted: a server may show such a certificate."""
    if not configuration.ssl_ca_cert:
        return
    try:
        context.load_verify_locations(configuration.ssl_ca_cert)
    except OSError as error:
        raise _no_authority(error) from error


def _load_certificate(context: ssl.SSLContext, configuration: _Configuration) -> None:
    if not configuration.cert_file:
        return
    try:
        context.load_cert_chain(configuration.cert_file, configuration.key_file, password=_no_password)
    except OSError as error:
        raise ValueError(
            f"client-certificate and client-key: are no certificate and its key: {_tls_reason(error)}"
        ) from error


def _no_authority(error: OSError) -> ValueError:
    return ValueError(f"certificate-authority: is no certificate: {_tls_reason(error)}")


def _tls_reason(error: OSError) -> str:
    """OpenSSL's reason; for input that is not PEM, OpenSSL names only a place in its code."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "not PEM"
    return error.strerror or str(error)


def _no_password() -> str:
    """Without this, OpenSSL asks for a password on the terminal."""
    raise ValueError("client-key: is encrypted; a key that needs a password can't be used")
