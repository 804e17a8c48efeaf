"""Rules for names and values: each says what is wrong with a text.

Sources: k8s.io/apimachinery pkg/util/validation and pkg/api/validate; pkg/apis/resource/validation.
"""

import re
import uuid
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

Rule: TypeAlias = "Callable[[str], str]"
"""Returns what is wrong with a text; empty if nothing is."""

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL: Final = re.compile(_LABEL)
_DNS_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_C_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL_NAME: Final = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_REMEMBERED: Final = 1024
"""The most names that each rule remembers: the devices of a cluster repeat the same names."""

_MAX_LABEL: Final = 63
_MAX_SUBDOMAIN: Final = 253
_MAX_IDENTIFIER: Final = 32
_QUOTA_PREFIX: Final = "requests."


@lru_cache(maxsize=_REMEMBERED)
def dns_label(text: str) -> str:
    """A DNS label (RFC 1123), e.g. ``gpu-0``."""
    return _formed(text, _DNS_LABEL, _MAX_LABEL, "a DNS label: lower case letters, digits and -")


def dns_subdomain(text: str) -> str:
    """A DNS subdomain (RFC 1123), e.g. ``gpu.example.com``."""
    return _formed(text, _DNS_SUBDOMAIN, _MAX_SUBDOMAIN, "a DNS subdomain: lower case letters, digits, - and .")


def driver_name(text: str) -> str:
    """The name of a driver: a short DNS subdomain in any case."""
    return _formed(text.lower(), _DNS_SUBDOMAIN, _MAX_LABEL, "a driver's name: a DNS subdomain")


def pool_name(text: str) -> str:
    """The name of a pool: DNS subdomains with ``/`` between them."""
    if len(text) > _MAX_SUBDOMAIN:
        return f"is longer than {_MAX_SUBDOMAIN}"
    parts = text.split("/")
    wrong = next(filter(None, map(dns_subdomain, parts)), "")
    return f"has a part that {wrong}" if wrong and len(parts) > 1 else wrong


@lru_cache(maxsize=_REMEMBERED)
def qualified_name(text: str) -> str:
    """An attribute or capacity: a C identifier, or a domain, ``/`` and one."""
    domain, slash, identifier = text.rpartition("/")
    if slash and (wrong := driver_name(domain.rpartition("/")[0] or domain)):
        return f"has a domain that {wrong}"
    wrong = _formed(identifier, _C_IDENTIFIER, _MAX_IDENTIFIER, "a C identifier")
    return f"has a name that {wrong}" if wrong and slash else wrong


def full_name(text: str) -> str:
    """An attribute with its domain."""
    return qualified_name(text) if "/" in text else "is not a domain and a name with / between them"


def label_key(text: str) -> str:
    """The key of a label or taint, with or without a domain."""
    domain, slash, name = text.rpartition("/")
    if slash and (wrong := dns_subdomain(domain)):
        return f"has a domain that {wrong}"
    return _formed(name, _LABEL_NAME, _MAX_LABEL, "a label's name: letters, digits, -, _ and .")


def label_value(text: str) -> str:
    """The value of a label or taint; it may be empty."""
    return _formed(text, _LABEL_NAME, _MAX_LABEL, "a label's value: letters, digits, -, _ and .") if text else ""


def extended_resource(text: str) -> str:
    """An extended resource: qualified, not in a domain of Kubernetes, and short enough for a quota."""
    wrong = "/" not in text or "kubernetes.io/" in text or text.startswith(_QUOTA_PREFIX)
    return "is not an extended resource's name" if wrong else label_key(f"{_QUOTA_PREFIX}{text}")


def uid(text: str) -> str:
    """A UUID in its normal form."""
    try:
        normal = str(uuid.UUID(text))
    except ValueError:
        normal = ""
    return "" if text == normal else "is not a UUID in lower case"


def utf8_length(text: str) -> int:
    """The number of bytes in UTF-8. Half of a surrogate pair, which JSON can have, counts as three."""
    return len(text.encode(errors="surrogatepass"))


def _formed(text: str, pattern: re.Pattern[str], longest: int, what: str) -> str:
    if not text:
        return "is empty"
    if utf8_length(text) > longest:
        return f"is longer than {longest}"
    return "" if pattern.fullmatch(text) else f"is not {what}"
