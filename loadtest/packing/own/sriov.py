"""Ports whose bandwidth several pods share, in two directions (consumable capacity).

Devices are published as by the profile ``net`` of dra-example-driver: with ingress and egress bandwidth.
"""

from typing import Final

from loadtest.packing.own.scenario import Ask, Class, Device, Machine, PodKind, Scenario

_NET: Final = Class("net.example.com", "net.example.com")
_G: Final = 10**9
_IN, _OUT = "ingressBandwidth", "egressBandwidth"
_PORTS: Final = (25, 25, 100, 100)
"""Bandwidth of each port of a node, in Gbit/s."""


def sriov() -> Scenario:
    """Nodes with two fast and two slow ports. Some pods receive more, some send more."""
    devices = tuple([_port(number, speed) for number, speed in enumerate(_PORTS)])
    kinds = (
        _kind("light", 30, 5, 5),
        _kind("sink", 20, 20, 5),
        _kind("source", 20, 5, 20),
        _kind("storage", 20, 25, 25),
        _kind("bulk", 10, 60, 60),
    )
    return Scenario("sriov", (Machine("four ports", devices, 2 * sum(_PORTS)),), kinds)


def _kind(name: str, weight: int, receives: int, sends: int) -> PodKind:
    share = {_IN: receives * _G, _OUT: sends * _G}
    return PodKind(name, weight, receives + sends, (Ask("port", _NET, share=share),))


def _port(number: int, speed: int) -> Device:
    capacity = {_IN: speed * _G, _OUT: speed * _G}
    return Device(f"net-{number}", _NET.driver, {"interface": f"eth{number}"}, capacity, shared=True)
