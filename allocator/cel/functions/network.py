"""IP addresses and CIDRs."""

import math
from collections.abc import Callable, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from allocator.cel.cost import FIRST, ONE, TWICE, Cost, by_sizes
from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Function, Library, free, function, member
from allocator.cel.types import BOOL, CIDR, INT, IP, STRING
from allocator.cel.values import Address, Network

_BROADCAST: Final = IPv4Address("255.255.255.255")


def _parse(text: str) -> Address:
    try:
        ip = ip_address(text)
    except (ValueError, AddressValueError):
        raise EvaluationError(f"IP Address {text[:64]!r} parse error during conversion from string") from None
    if isinstance(ip, IPv6Address):
        if ip.scope_id is not None:
            raise EvaluationError(f"IP address {text[:64]!r} with zone value is not allowed")
        if ip.ipv4_mapped is not None:
            raise EvaluationError(f"IPv4-mapped IPv6 address {text[:64]!r} is not allowed")
    return Address(ip)


def _parse_network(text: str) -> Network:
    address, slash, length = text.partition("/")
    if not slash or not length.isdecimal() or not length.isascii() or (length[0] == "0" and length != "0"):
        raise EvaluationError(f"network address parse error during conversion from string: {text[:64]!r}")
    ip = _parse(address).ip
    if int(length[:4]) > ip.max_prefixlen:
        raise EvaluationError(f"network address parse error: prefix length out of range: {text[:64]!r}")
    return Network(ip, ip_network(f"{ip}/{length}", strict=False))


def _valid(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def call(text: str) -> bool:
        try:
            parse(text)
        except EvaluationError:
            return False
        return True

    return call


def _is_global_unicast(value: Address) -> bool:
    ip = value.ip
    return not (ip == _BROADCAST or ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local)


def _is_link_local_multicast(value: Address) -> bool:
    ip = value.ip
    if isinstance(ip, IPv4Address):
        return ip.packed[:3] == b"\xe0\x00\x00"
    return ip.packed[0] == 0xFF and ip.packed[1] & 0x0F == 0x02


def _contains(network: Network, address: Address) -> bool:
    return address.ip in network.net


def _contains_network(network: Network, other: Network) -> bool:
    inside = other.ip in network.net
    return inside and network.net.prefixlen <= other.net.prefixlen


def _masked(network: Network) -> Network:
    return Network(network.net.network_address, network.net)


def _is_canonical(text: str) -> bool:
    return str(_parse(text).ip) == text


def _test(name: str, holds: Callable[[Address], bool]) -> Function:
    return function(name, member(IP, result=BOOL, call=holds), cost=ONE)


def _comparing(*, text: bool, network: bool) -> Cost:
    """Both operands are read; a network is also masked, and a text is parsed first."""

    def formula(sizes: Sequence[int]) -> int:
        cost = math.ceil((sizes[0] + sizes[0]) * 0.1)
        cost += math.ceil(sizes[0] * 0.1) + 1 if network else 0
        return cost + (math.ceil(sizes[1] * 0.1) if text else 0)

    return by_sizes(formula)


LIBRARY: Final[Library] = (
    function("ip", free(STRING, result=IP, call=_parse, cost=FIRST), cost=None),
    function("ip", member(CIDR, result=IP, call=lambda value: Address(value.ip), cost=ONE)),
    function("isIP", free(STRING, result=BOOL, call=_valid(_parse)), cost=FIRST),
    function("ip.isCanonical", free(STRING, result=BOOL, call=_is_canonical), cost=TWICE),
    function("family", member(IP, result=INT, call=lambda value: value.ip.version), cost=ONE),
    _test("isUnspecified", lambda value: value.ip.is_unspecified),
    _test("isLoopback", lambda value: value.ip.is_loopback),
    _test("isLinkLocalMulticast", _is_link_local_multicast),
    _test("isLinkLocalUnicast", lambda value: value.ip.is_link_local),
    _test("isGlobalUnicast", _is_global_unicast),
    function("cidr", free(STRING, result=CIDR, call=_parse_network), cost=FIRST),
    function("isCIDR", free(STRING, result=BOOL, call=_valid(_parse_network)), cost=FIRST),
    function("prefixLength", member(CIDR, result=INT, call=lambda value: value.net.prefixlen), cost=ONE),
    function("masked", member(CIDR, result=CIDR, call=_masked), cost=ONE),
    function(
        "containsIP",
        member(
            CIDR, STRING, result=BOOL, call=lambda a, b: _contains(a, _parse(b)),
            cost=_comparing(text=True, network=False),
        ),
        member(CIDR, IP, result=BOOL, call=_contains),
        cost=_comparing(text=False, network=False),
    ),
    function(
        "containsCIDR",
        member(
            CIDR, STRING, result=BOOL, call=lambda a, b: _contains_network(a, _parse_network(b)),
            cost=_comparing(text=True, network=True),
        ),
        member(CIDR, CIDR, result=BOOL, call=_contains_network),
        cost=_comparing(text=False, network=True),
    ),
    function(
        "string",
        free(IP, result=STRING, call=lambda value: str(value.ip)),
        free(CIDR, result=STRING, call=lambda value: f"{value.ip}/{value.net.prefixlen}"),
    ),
)  # fmt: skip
