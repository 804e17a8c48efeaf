"""Certificates and a token, by which a controller and the service know each other; the files are read again."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import structlog

from extender.config.settings import ControllerSettings
from extender.kube.certificates import Subject, TlsProblem, file_problem, tls_problem, trusting
from extender.plugins.negotiation.protocol import ControllerAwayError
from extender.tools.files import UnreadableError, bearer

logger = structlog.get_logger()

_Seen: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Of each file: time of its last change in nanoseconds, inode, bytes. None: there is no such file."""


class _FileError(Exception):
    """Files cannot be used; the text names them."""


class ControllerCredentials:
    """The files of one controller, as they are now.

    Args:
        settings: name the files.
    """

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._context: ssl.SSLContext | None = None
        self._seen: _Seen = ()

    def tls(self) -> ssl.SSLContext | bool:
        """TLS with the certificates of the files; a new context if they have changed. True: there is no TLS.

        While changed files cannot be used, the former ones stay in use: programs write one file after the other.

        Raises:
            ControllerAwayError: the files cannot be used, and never could.
        """
        settings = self._settings
        if not settings.url.startswith("https:"):
            return True
        seen = tuple(_seen(each) for each in (settings.ca, settings.certificate, settings.key) if each)
        if self._context is not None and seen == self._seen:
            return self._context
        try:
            self._context = self._read()
        except _FileError as error:
            if self._context is None:
                raise ControllerAwayError(str(error)) from error
            logger.warning("former certificates stay in use", controller=settings.name, problem=str(error))
        self._seen = seen
        return self._context

    def authorization(self) -> Mapping[str, str]:
        """The header with the token, read for each question.

        Raises:
            ControllerAwayError: the file cannot be read, or has no token.
        """
        try:
            return bearer(self._settings.token)
        except UnreadableError as error:
            raise ControllerAwayError(f"{self._settings.token}: {error}") from error

    def refused(self, error: BaseException | None) -> str:
        """What the error of a connection says about certificates: whose, and why; empty: nothing."""
        settings = self._settings
        match tls_problem(error):
            case TlsProblem(Subject.THEIRS, reason):
                authorities = f"file {settings.ca}" if settings.ca else "those of the system"
                return f"the certificate of {settings.url} is not accepted: {reason}. The authorities are {authorities}"
            case TlsProblem(Subject.OURS, reason) if settings.certificate:
                return f"{settings.url} does not accept our certificate {settings.certificate}: {reason}"
            case TlsProblem(Subject.OURS, reason):
                return f"{settings.url} asks for our certificate, and the settings name none: {reason}"
            case TlsProblem(Subject.NO_TLS):
                return f"{settings.url} does not speak TLS; its url may begin with http:"
            case TlsProblem(_, reason):
                return f"{settings.url}: TLS fails: {reason}"
        return ""

    def _read(self) -> ssl.SSLContext:
        settings = self._settings
        try:
            context = trusting(file=settings.ca or None)
        except OSError as error:  # an SSLError is one, too
            raise _FileError(f"ca {settings.ca}: {file_problem(error)}") from error
        if settings.certificate:
            try:
                # Without a password, OpenSSL would ask for one on the terminal.
                context.load_cert_chain(settings.certificate, settings.key, password="")
            except OSError as error:
                files = f"certificate {settings.certificate} and key {settings.key}"
                raise _FileError(f"{files}: {file_problem(error)}") from error
        return context


def _seen(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
