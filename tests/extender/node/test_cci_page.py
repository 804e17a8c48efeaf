"""docs/how-to/cci-drivers.md: the protocol of the page is the one that is spoken, and its driver and its claim work."""

import re
from typing import Any

import yaml

from extender.node import sockets
from extender.node.cci import Ask, ClaimName, Grant
from extender.node.cci.kit import CciService
from extender.node.cci.protocol import SERVICE
from extender.node.compute import read_wishes
from extender.node.driver import AllocatedClaim, AllocatedDevice, DriverParameters
from tests.extender.node.cci_scenes import EIGHT, Scripted
from tests.extender.test_docs import DOCS

PAGE = (DOCS / "how-to/cci-drivers.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_the_protocol_has_the_messages_and_methods_that_are_served() -> None:
    proto = block("proto")
    written = {
        name: {int(number): f"{field} {kind}" for kind, field, number in re.findall(r"(\w+) (\w+) = (\d+);", body)}
        for name, body in re.findall(r"message (\w+) \{(.*?)\}", proto, re.DOTALL)
    }
    assert written == {name: dict(sockets.MESSAGES[name]) for name in written}
    (package,) = re.findall(r"package ([\w.]+);", proto)
    (service,) = re.findall(r"service (\w+)", proto)
    assert f"{package}.{service}" == SERVICE
    methods = {name: request for name, (request, _) in CciService(Scripted()).methods.items()}
    assert dict(re.findall(r"rpc (\w+)\((\w+)\)", proto)) == methods


def test_the_driver_of_the_page_gives_the_first_cpus() -> None:
    names: dict[str, Any] = {}
    exec(block("python").replace("serve(First())", ""), names)  # noqa: S102  # our own page
    ask = Ask(ClaimName("ns", "a", "uid-a"), "uid-p", "main", 3, EIGHT.cpus)
    assert names["First"]().admit(ask) == Grant(frozenset({0, 4, 1}))


def test_the_claim_of_the_page_names_the_example() -> None:
    (config,) = yaml.safe_load(block("yaml"))["spec"]["spec"]["devices"]["config"]
    given = (DriverParameters((), config["opaque"]["parameters"]),)
    claim = AllocatedClaim("ns", "a", "uid-a", (AllocatedDevice("cpus", "n", "cpu-1"),), given)
    assert read_wishes(claim, {}).driver == "packing.example.com"
