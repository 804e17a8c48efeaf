"""Who we are to an API server, and where it is: found in a kubeconfig or in the pod we run in, and kept fresh.

kubernetes-asyncio reads the configuration: tokens, certificates, exec plugins, identity providers.
"""

import asyncio
import importlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol, TypeVar

import yaml

from extender.kube.kubeconfig import Choice, KubeconfigError, choose

_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
_LOADER_ERRORS: Final = (OSError, yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""What kubernetes-asyncio raises over what can't be used, besides its own error."""

_SLIPS: Final = (TypeError, LookupError, AttributeError, AssertionError)
"""Those of them whose text says nothing to people."""

_T = TypeVar("_T")

_Reload = Callable[[], Awaitable[None]]


class _Configuration(Protocol):
    """What of kubernetes-asyncio's configuration counts here."""

    host: str
    api_key: dict[str, str]
    ssl_ca_cert: str | None
    cert_file: str | None
    key_file: str | None
    verify_ssl: bool
    tls_server_name: str | None
    proxy: str | None


class ConnectError(Exception):
    """There is no usable API server; all that is wrong, each for a person to act on."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


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
        """What aiohttp is to know with each request: a proxy, and the name that the server's certificate is for."""
        found = {"proxy": self._configuration.proxy, "server_hostname": self._configuration.tls_server_name}
        return {name: value for name, value in found.items() if value}

    @property
    def headers(self) -> Mapping[str, str]:
        """Who we are, if a token or a password says so."""
        token = self._configuration.api_key.get("BearerToken")
        return {"Authorization": token} if token else {}

    async def renew(self, refused: Mapping[str, str] | None = None) -> None:
        """Read files and ask plugins again; new certificates count for new connections.

        Args:
            refused: headers that did not work; if others are in force already, there is nothing to do.

        Raises:
            ConnectError: they can't be read any more; the old ones stay in force.
        """
        async with self._lock:
            if refused is not None and refused != self.headers:
                return
            await self._reload()
            try:
                if self.tls is not None:
                    _load_certificate(self.tls, self._configuration)
            except ValueError as error:
                raise ConnectError(str(error)) from error


async def load_credentials(origin: Origin) -> Credentials:
    """Read where the API server is and who we are.

    Raises:
        ConnectError: what can't be read or used.
    """
    # A thousand generated modules come with it, a second and 40 MB: only for those who connect.
    client = importlib.import_module("kubernetes_asyncio.client")
    config = importlib.import_module("kubernetes_asyncio.config")
    configuration: _Configuration = client.Configuration()
    choice = await _choice(origin)
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


async def _choice(origin: Origin) -> Choice:
    """What of the kubeconfig is to be used; nothing where there is none."""
    try:
        return await asyncio.to_thread(choose, origin.files, origin.context) if origin.files else Choice("")
    except KubeconfigError as error:
        raise ConnectError(*error.problems) from error


async def _load(config: ModuleType, configuration: _Configuration, origin: Origin, choice: Choice) -> _Reload:
    """Fill the configuration; what is returned does it again."""
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
    """What went wrong, where it is more than a Python program's own slip over what it was given."""
    if isinstance(error, _SLIPS):
        return "what it gives is no credential"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _tls(configuration: _Configuration) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    except OSError as error:
        raise ValueError(f"certificate-authority: is no certificate: {_tls_reason(error)}") from error
    # Certificates that clusters make for themselves lack extensions that newer Pythons insist on; kubectl does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_certificate(context, configuration)
    return context


def _load_certificate(context: ssl.SSLContext, configuration: _Configuration) -> None:
    if not configuration.cert_file:
        return
    try:
        context.load_cert_chain(configuration.cert_file, configuration.key_file, password=_no_password)
    except OSError as error:
        raise ValueError(
            f"client-certificate and client-key: are no certificate and its key: {_tls_reason(error)}"
        ) from error


def _tls_reason(error: OSError) -> str:
    """OpenSSL's word for it; of what is not even PEM it says nothing but where in its code that was."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "not PEM"
    return error.strerror or str(error)


def _no_password() -> str:
    """Else OpenSSL would ask for one on the terminal."""
    raise ValueError("client-key: is encrypted; a key that needs a password can't be used")
