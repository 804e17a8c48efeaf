"""Absolute URLs, as Go's ``url.ParseRequestURI`` accepts them."""

import re
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from allocator.cel.cost import FIRST, ONE
from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Function, Library, free, function, member
from allocator.cel.types import BOOL, STRING, URL, list_of, map_of
from allocator.cel.values import Url, Value

_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
_HOST: Final = re.compile(r"[^ \[\]<>\"\\^`{|}]*|\[[0-9a-fA-F:.]+(?:%25[^\]]*)?\]")
_PATH_SAFE: Final = "/%:@!$&'()*+,;=~[]"


def parse_url(text: str) -> Url:
    """An absolute URL.

    Raises:
        ValueError: not one.
    """
    if not text or (_SCHEME.match(text) is None and not text.startswith("/")):
        raise ValueError(f"parse {text[:64]!r}: invalid URI for request")
    if _UNSAFE.search(text) or _BAD_ESCAPE.search(text.partition("?")[0]):
        raise ValueError(f"parse {text[:64]!r}: invalid character or escape in URL")
    scheme, _, rest = text.partition(":") if _SCHEME.match(text) else ("", "", text)
    if not rest.startswith("/"):
        return Url(text, scheme.lower(), "", "", "", "", {})  # an opaque URL has no parts after the scheme
    parts = urlsplit(text, allow_fragments=False)
    host = parts.netloc.rpartition("@")[2]
    name, port = _host_and_port(host)
    query: dict[str, list[str]] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        query.setdefault(key, []).append(value)
    path = quote(parts.path, safe=_PATH_SAFE)
    return Url(text, parts.scheme, host, name, port, path, {key: tuple(values) for key, values in query.items()})


def _host_and_port(host: str) -> tuple[str, str]:
    end = host.rfind("]")
    name, colon, port = host[end + 1 :].rpartition(":") if end >= 0 else host.rpartition(":")
    if colon:
        name = host[: end + 1] + name
    else:
        name, port = host, ""
    if (port and not (port.isascii() and port.isdecimal())) or _HOST.fullmatch(name) is None:
        raise ValueError(f"invalid host {host[:64]!r}")
    return (name[1:-1] if name.startswith("[") else name), port


def _url(text: str) -> Url:
    try:
        return parse_url(text)
    except ValueError as error:
        raise EvaluationError(f"URL parse error during conversion from string: {error}") from None


def _is_url(text: str) -> bool:
    try:
        parse_url(text)
    except ValueError:
        return False
    return True


def _part(name: str, attribute: str) -> Function:
    def call(value: Url) -> Value:
        return getattr(value, attribute)

    return function(name, member(URL, result=STRING, call=call), cost=ONE)


LIBRARY: Final[Library] = (
    function("url", free(STRING, result=URL, call=_url), cost=FIRST),
    function("isURL", free(STRING, result=BOOL, call=_is_url)),
    _part("getScheme", "scheme"),
    _part("getHost", "host"),
    _part("getHostname", "hostname"),
    _part("getPort", "port"),
    _part("getEscapedPath", "path"),
    function(
        "getQuery", member(URL, result=map_of(STRING, list_of(STRING)), call=lambda value: dict(value.query)), cost=ONE
    ),
)
