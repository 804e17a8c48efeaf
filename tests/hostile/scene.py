"""What the service knows before anything hostile comes: nodes, devices, claims, and claims with hostile selectors."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

import orjson

from tests.hostile.requests import SELECTOR_CLAIM
from tests.hostile.selectors import HostileSelector, hostile_selectors
from tests.hostile.specimens import DRIVER, NAMESPACE, Object
from tests.kit.objects.parts import api_object, claim_spec, exactly, of_driver, slice_spec
from tests.kit.objects.synthetic import node_name
from tests.kit.objects.worlds import Machine, Wish, pending_claim, waiting_pod, world

_NODES: Final = 100
_ORDINARY: Final = 20
"""Pods that the others ask about."""

_LONGEST_EXPRESSION: Final = 100_000


def chosen_selectors(seed: int, number: int) -> tuple[HostileSelector, ...]:
    """So many selectors, of as many declarations as possible; a seed has its own."""
    by_declaration: dict[str, list[HostileSelector]] = {}
    for each in hostile_selectors():
        if len(each.expression) <= _LONGEST_EXPRESSION:
            by_declaration.setdefault(each.of, []).append(each)
    random = Random(f"{seed}/selectors")
    columns = [random.sample(each, len(each)) for each in by_declaration.values()]
    turns = max(map(len, columns))
    found = [column[turn] for turn in range(turns) for column in columns if turn < len(column)]
    return tuple(found[:number])


def scene(selectors: Sequence[HostileSelector]) -> Iterator[Object]:
    """Raw objects."""
    for objects in world(_NODES, Machine(), Wish()).values():
        yield from objects
    yield from (_tolerant(pending_claim(Wish(), f"claim-{number}")) for number in range(_ORDINARY))
    yield _object("DeviceClass", "hostile", spec={"selectors": of_driver(DRIVER)})
    yield _object("ResourceSlice", "hostile-devices", spec=_devices())
    for number, selector in enumerate(selectors):
        yield selector_claim(SELECTOR_CLAIM.format(number), selector.expression)


def ordinary_requests() -> list[bytes]:
    """What the others send: filter for ordinary pods, and now and then a look whether the process answers."""
    names = [node_name(number) for number in range(_NODES)]
    found = []
    for number in range(_ORDINARY):
        pod = waiting_pod(f"pod-{number}", f"claim-{number}")
        body = orjson.dumps({"Pod": pod, "NodeNames": names})
        found.append(b"POST /filter HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        if number % 4 == 0:
            found.append(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    return found


def selector_claim(name: str, expression: str) -> Object:
    """A claim for one device that an expression picks."""
    spec = claim_spec([exactly("r", "hostile", 1, expression)])
    return _object("ResourceClaim", name, namespace=NAMESPACE, spec=spec)


def _tolerant(claim: Object) -> Object:
    """A hostile taint rule may rightly be about all devices: it is not to disturb ordinary pods."""
    for request in claim["spec"]["devices"]["requests"]:
        request["exactly"]["tolerations"] = [{"operator": "Exists"}]
    return claim


def _devices() -> Object:
    attributes = {
        "text": {"string": "a100"},
        "number": {"int": 3},
        "ints": {"ints": [1, 2]},
        "version": {"version": "1.2.3"},
    }
    device = {"attributes": attributes, "capacity": {"memory": {"value": "8Gi"}}}
    devices = [{"name": f"device-{number}", **device} for number in range(4)]
    return slice_spec("hostile", devices, driver=DRIVER, nodeName=node_name(0))


def _object(kind: str, name: str, **fields: Any) -> Object:
    return api_object(kind, name, metadata={"uid": f"uid-{kind}-{name}", "resourceVersion": "1"}, **fields)
