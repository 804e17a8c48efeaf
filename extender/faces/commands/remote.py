"""A running service that a command asks: where it is, whom the command trusts, and who the caller is."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
import typer

from extender.faces.commands.options import OptionGroup, parse_path
from extender.kube.certificates import Subject, TlsProblem, tls_problem, trusting
from extender.tools.files import UnreadableError, read_text
from extender.tools.user_error import UserError

_SECONDS: Final = 60.0
_HEADERS: Final = {"accept": "application/json"}
_NO_DOCUMENT: Final = "and no answer of dra-extender: is this its address?"


class RemoteError(UserError):
    """The service cannot be asked, or does not answer the question. The text names the URL or the option."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A service, and the files for TLS and for who the caller is.

    Attributes:
        url: of the service.
        token_file: with a bearer token.
        ca: authorities that are trusted for the service's certificate, in PEM; None: those of this machine.
        certificate: the caller's certificate, in PEM.
        key: its private key; None: it is in the file of the certificate.
        transport: of HTTP; None: the network.
    """

    url: str
    token_file: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    transport: httpx.BaseTransport | None = None

    def at(self, url: str) -> "Remote":
        """The service at a URL. Raises RemoteError: there is no URL, but there are files for it."""
        if not url and self != Remote(""):
            raise RemoteError("--token-file, --cacert, --cert and --key are for --server")
        return replace(self, url=url)

    def get(self, path: str, params: Mapping[str, Sequence[str]]) -> Mapping[str, Any]:
        """The JSON object that the service answers with.

        Raises:
            RemoteError: a file cannot be used, the service cannot be reached, or it refuses or cannot answer.
        """
        return self._answer(path, params)

    def post(self, path: str, body: bytes) -> Mapping[str, Any]:
        """The JSON object that the service answers to a body in JSON. Errors as `get`."""
        return self._answer(path, {}, body)

    def _answer(self, path: str, params: Mapping[str, Sequence[str]], body: bytes | None = None) -> Mapping[str, Any]:
        where = f"{self.url.rstrip('/')}{path}"
        headers, trust = self.headers(), self._trust()
        try:
            with httpx.Client(timeout=_SECONDS, verify=trust, transport=self.transport) as client:
                method = "GET" if body is None else "POST"
                response = client.request(method, where, params=dict(params), content=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            raise RemoteError(f"{where}: {_in_words(error)}") from error
        return document(where, response)

    def headers(self) -> Mapping[str, str]:
        """The headers of a request, with the token. Raises RemoteError: there is none in its file."""
        return {**_HEADERS, **self._token()}

    def _token(self) -> Mapping[str, str]:
        if not self.url.lower().startswith("https:"):
            if any((self.token_file, self.ca, self.certificate, self.key)):
                raise RemoteError(
                    f"{self.url}: --token-file, --cacert, --cert and --key need a URL that begins with https:"
                )
            return {}
        if self.token_file is None:
            return {}
        try:
            token = read_text(self.token_file).strip()
        except UnreadableError as error:
            raise RemoteError(f"--token-file {self.token_file}: {error}") from error
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise RemoteError(f"--token-file {self.token_file}: there is no token in it")
        return {"authorization": f"Bearer {token}"}

    def _trust(self) -> ssl.SSLContext | bool:
        if self.key is not None and self.certificate is None:
            raise RemoteError("--key: the certificate of the key is missing; give --cert")
        if self.ca is None and self.certificate is None:
            return True
        context = httpx.create_ssl_context() if self.ca is None else _context(self.ca)
        if self.certificate is not None:
            files = [self.certificate, *([] if self.key is None else [self.key])]
            option = " ".join(f"{name} {file}" for name, file in zip(("--cert", "--key"), files, strict=False))
            for file in files:
                _check_readable(option, file)
            try:
                # Without a password, OpenSSL would ask for one on the terminal.
                context.load_cert_chain(self.certificate, self.key, password="")
            except (ssl.SSLError, OSError) as error:
                why = "there is no certificate with its private key, in PEM and without a passphrase"
                raise RemoteError(f"{option}: {why}") from error
        return context


def _files(
    *,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=parse_path, help="With --server: a file with a bearer token that says who calls."
        ),
    ] = None,
    cacert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=parse_path,
            help="With --server: authorities that are trusted for its certificate, in PEM.",
        ),
    ] = None,
    cert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=parse_path, help="With --server: a client certificate that says who calls, in PEM."
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=parse_path, help="The private key of --cert, if it is in another file."),
    ] = None,
) -> Remote:
    return Remote("", token_file, cacert, cert, key)


RemoteOptions = Annotated[Remote, OptionGroup(_files)]
"""A service without its URL, which each command takes by an option of its own."""


def _context(ca: Path) -> ssl.SSLContext:
    option = f"--cacert {ca}"
    _check_readable(option, ca)
    try:
        return trusting(file=ca)
    except (ssl.SSLError, OSError) as error:
        raise RemoteError(f"{option}: there is no certificate in PEM") from error


def _check_readable(option: str, file: Path) -> None:
    try:
        read_text(file)
    except UnreadableError as error:
        raise RemoteError(f"{option}: {file}: {error}") from error


def document(where: str, response: httpx.Response) -> Mapping[str, Any]:
    """The object of an answer with status 200; of another answer, its message is the error.

    Raises:
        RemoteError: the answer is another one.
    """
    status = response.status_code
    try:
        found = response.json()
    except ValueError:
        found = None
    if status == HTTPStatus.OK and isinstance(found, dict):
        return found
    message = (found.get("error") or found.get("message")) if isinstance(found, dict) else None
    if not isinstance(message, str):
        raise RemoteError(f"{where}: status {status} {_NO_DOCUMENT}")
    if status == HTTPStatus.UNAUTHORIZED:
        message = (
            f"the service does not know the caller (401): {message}. The options are --token-file, --cert and --key"
        )
    elif status == HTTPStatus.FORBIDDEN:
        message = f"the service refuses the caller (403): {message}"
    raise RemoteError(f"{where}: {message}")


def _in_words(error: BaseException) -> str:
    """The problem with a connection; of TLS, whose certificate it is about."""
    match tls_problem(error):
        case TlsProblem(Subject.THEIRS, reason):
            told = f"the certificate of the service is not accepted: {reason}"
            return f"{told}. --cacert names the authority that has issued it"
        case TlsProblem(Subject.NO_TLS):
            return "the service does not speak TLS; its URL may begin with http:"
        case TlsProblem(Subject.OURS, reason):
            return f"the service does not accept the client certificate ({reason}). The options are --cert and --key"
    return str(error) or type(error).__name__
