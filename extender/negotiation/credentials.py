"""How we know a controller, and how it knows us: certificates and a token, in files that are replaced now and then."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import structlog

from extender.config.controllers import ControllerSettings
from extender.config.text_file import UnreadableError, read_bytes
from extender.negotiation.controller import ControllerAwayError

logger = structlog.get_logger()

_Seen: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Of each file: time of its last change in nanoseconds, inode, bytes. None: there is no such file."""


class Credentials:
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
        except OSError as error:  # an SSLError is one, too
            problem = f"its certificates cannot be used: {error}"
            if self._context is None:
                raise ControllerAwayError(problem) from error
            logger.warning("former certificates stay in use", controller=settings.name, problem=problem)
        self._seen = seen
        return self._context

    def authorization(self) -> Mapping[str, str]:
        """The header with the token, read for each question.

        Raises:
            ControllerAwayError: the file cannot be read, or has no token.
        """
        path = self._settings.token
        if not path:
            return {}
        try:
            token = read_bytes(Path(path)).decode("ascii", errors="replace").strip()
        except UnreadableError as error:
            raise ControllerAwayError(f"{path}: {error}") from error
        if not token or not token.isascii() or not token.isprintable():
            raise ControllerAwayError(f"{path}: a token is one line of printable ASCII")
        return {"Authorization": f"Bearer {token}"}

    def _read(self) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.create_default_context(cafile=settings.ca or None)
        if settings.certificate:
            context.load_cert_chain(settings.certificate, settings.key)
        return context


def _seen(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
