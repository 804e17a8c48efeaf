"""Who may send requests: programs may, pages of other web sites may not.

A page in a browser on the same machine can send requests to 127.0.0.1. The browser does not ask first if the content
type is that of a form. A page can also come from a name that it lets point to 127.0.0.1 (DNS rebinding), and then read
the answers. Three headers show such requests: ``Origin``, ``Sec-Fetch-Site`` and ``Host``. DNS rebinding needs a name,
so an address in ``Host`` is always fine. With TLS every name is fine: a browser compares the name with the certificate.
A person may follow a link on another site, such as a chat, to the console: the other site does not see the answer.
The content type does not help: ``curl --data`` sends that of a form.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from allocator.tools import shown

_LOOPBACK: Final = "localhost"
_SAFE: Final = frozenset({"GET", "HEAD"})
_SITES: Final = frozenset({b"same-origin", b"none"})
"""``none``: the user has typed the address."""

_FOLLOWED: Final = {(b"sec-fetch-mode", b"navigate"), (b"sec-fetch-dest", b"document"), (b"sec-fetch-user", b"?1")}
"""What a browser says when a person follows a link and the answer becomes the page."""


_HOST: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[0-9A-Za-z._~%-]+)?)\]|(?P<v4>\d+\.\d+\.\d+\.\d+)|(?P<name>[0-9A-Za-z_.-]+))(?::\d{1,5})?"
)
"""A header ``Host`` (RFC 9110, 7.2): an address of IPv6 in brackets, an address of IPv4 or a name, and perhaps a port.

Nothing else follows: no user, no path, no second bracket. A name may end with one dot.
"""


class Callers:
    """Decides whether a request is answered.

    Args:
        names: host names of this service, beside addresses and localhost; None: the service has TLS.
    """

    def __init__(self, names: Iterable[str] | None) -> None:
        self._scheme = b"https://" if names is None else b"http://"
        self._is_tls = names is None
        self._names = frozenset({_LOOPBACK, *(name.lower().rstrip(".") for name in names or ())})
        # There are few callers, and each sends one host.
        self._is_ours = lru_cache(maxsize=64)(self._is_known)

    def refusal(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Why the request is refused; empty if it is not."""
        host = origin = b""
        seen = set()
        for name, value in headers:
            if name == b"host":
                host = value
                if not (self._is_tls or self._is_ours(host)):
                    return (
                        f"host {shown(host.decode('latin-1'))} is not known here: use an address, "
                        "or add the name to server.allowedHosts"
                    )
            elif name == b"origin":
                origin = value
            elif name.startswith(b"sec-fetch-"):
                seen.add((name, value))
        sites = {value for name, value in seen if name == b"sec-fetch-site"} - _SITES
        if sites and not (method in _SAFE and seen >= _FOLLOWED):
            return f"requests of other web sites are refused (Sec-Fetch-Site: {shown(sites.pop().decode('latin-1'))})"
        if origin and (method not in _SAFE or origin.lower() != self._scheme + host.lower()):
            return f"requests of web pages are refused (Origin: {shown(origin.decode('latin-1'))})"
        return ""

    def _is_known(self, host: bytes) -> bool:
        found = _HOST.fullmatch(host.decode("latin-1"))
        if found is None:
            return False
        name = (found["name"] or "").lower()
        return name.removesuffix(".") in self._names if name else _is_address(found["v4"], found["v6"])


def _is_address(v4: str | None, v6: str | None) -> bool:
    try:
        IPv4Address(v4) if v4 else IPv6Address(v6 or "")
    except ValueError:
        return False
    return True
