"""The files of the page, read once, and how browsers may use them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Final

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html"
)
"""The Content-Security-Policy. No inline code runs, and no text becomes markup but the templates of lit-html."""


VARY: Final = {"Vary": "Accept"}
"""For caches: the page and other answers have one path."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as a browser gets it.

    Attributes:
        tag: for ``ETag`` and ``If-None-Match``; it changes with the content.
    """

    content: bytes
    media_type: str
    tag: str

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of each answer: the browser asks again whether the file has changed."""
        return {
            "ETag": self.tag,
            "Cache-Control": "no-cache",
            **VARY,
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }


def page_files() -> Mapping[str, PageFile]:
    """All files by name, without folders."""
    folder = files("extender.faces.console").joinpath("page")
    return {each.name: _file(each) for each in folder.iterdir() if PurePosixPath(each.name).suffix in _TYPES}


def _file(path: Traversable) -> PageFile:
    content = path.read_bytes()
    digest = hashlib.blake2b(content, digest_size=12).hexdigest()
    return PageFile(content, _TYPES[PurePosixPath(path.name).suffix], f'"{digest}"')
