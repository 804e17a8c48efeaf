"""Hostile requests: every endpoint with odd bodies, queries, headers and framing, by number from a seed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any, Final

import orjson

from extender.cluster.objects.pods import POLICY
from tests.hostile import specimens
from tests.hostile.objects import HostileValues, Path, places_in, replaced
from tests.hostile.oddities import BROKEN, HEADERS, METHODS, PATHS, QUERIES
from tests.hostile.specimens import NAMESPACE, Object
from tests.hostile.values import DEPTHS, ESCAPES, HUGE, deep_list, deep_object
from tests.kit.objects.synthetic import node_name

SELECTOR_CLAIM: Final = "selector-{}"
"""Name of the claim with the selector of a number, in `NAMESPACE`."""

SESSION: Final = b"@session@"
"""Where the sender puts a session of the service, which no seed tells."""

_WEIGHING: Final = 1 / 4
"""The share of the pods with hostile selectors that ask for the policy fragmentation."""

_NODES: Final = tuple(map(node_name, range(100)))
TABLES: Final = (
    "/cluster",
    "/pools",
    "/devices",
    "/resources",
    "/claims",
    "/pods",
    "/quotas",
    "/gangs",
    "/preemptions",
    "/problems",
    "/decisions",
)
GETS: Final = (
    *TABLES,
    "/livez",
    "/healthz",
    "/readyz",
    "/metrics",
    "/",
    "/openapi.json",
    "/explain/hostile/p",
    "/explain/hostile/claims/c",
    "/console/fleet",
    "/console/matches",
    "/console/history",
    "/console/search",
    "/console/node",
    "/console/sessions",
    "/console/what-if",
    "/what-if",
    "/defragment",
    "/usage",
    "/console/usage",
    "/console/files/style.css",
)
_MEGABYTE: Final = 1_000_000
_LARGEST: Final = 3 * 512 * 1024
"""Bytes that etcd takes for an object."""


@dataclass(frozen=True, slots=True)
class HostileRequest:
    """A request as bytes.

    Attributes:
        method, target, headers, body: what it says, where it is HTTP at all.
        raw: what is sent instead, where it is not.
        answered: an answer must come; else the connection may just be closed.
    """

    number: int
    told: str
    method: str = "POST"
    target: bytes = b"/"
    headers: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"application/json"),)
    body: bytes = field(default=b"", repr=False)
    raw: bytes = field(default=b"", repr=False)
    answered: bool = True

    @property
    def label(self) -> str:
        """What ``--only`` takes."""
        return f"request:{self.number}"

    @property
    def is_plausible(self) -> bool:
        """A client of ours could send it: a Pod as large as etcd takes it, or names of nodes."""
        return self.size <= _LARGEST

    @property
    def value(self) -> str:
        """What is hostile about it, wherever it is sent."""
        return self.told.rpartition(": ")[2] if ": " in self.told else self.told.rpartition(", ")[2]

    @property
    def size(self) -> int:
        """Bytes that it is about."""
        return len(self.raw) or len(self.body) + len(self.target) + sum(len(n) + len(v) for n, v in self.headers)

    def as_bytes(self, session: bytes = b"none") -> bytes:
        """All of it, with a session put in."""
        if self.raw:
            return self.raw
        lines = [b"%b %b HTTP/1.1" % (self.method.encode(), self.target), b"host: 127.0.0.1"]
        lines += [b"%b: %b" % (name, value.replace(SESSION, session)) for name, value in self.headers]
        lines += [b"content-length: %d" % len(self.body)]
        return b"\r\n".join(lines) + b"\r\n\r\n" + self.body


def bodies() -> Mapping[str, tuple[Object, ...]]:
    """Path to valid bodies, of every endpoint that takes one."""
    pod, node = specimens.pod("p"), specimens.node("n")
    names: Object = {"Pod": pod, "NodeNames": list(_NODES[:3])}
    whole: Object = {"Pod": pod, "Nodes": {"items": [node]}}
    victims = {_NODES[0]: {"Pods": [pod], "NumPDBViolations": 1}}
    known = {_NODES[0]: {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}
    group = {"Name": "g", "Template": node, "Limit": 3, "Priority": 1}
    bind = {"PodName": "p", "PodNamespace": NAMESPACE, "PodUID": "uid-p", "Node": _NODES[0]}
    return {
        "/filter": (names, whole),
        "/prioritize": (names, whole),
        "/preempt": (
            {"Pod": pod, "NodeNameToVictims": victims},
            {"Pod": pod, "NodeNameToMetaVictims": known},
        ),
        "/bind": (bind,),
        "/explain": (pod, names),
        "/what-if": _questions(),
        "/autoscaler/start": ({}, {"Drivers": ["gpu.example.com"]}),
        "/autoscaler/filter": (whole,),
        "/autoscaler/prioritize": (whole,),
        "/autoscaler/NodeSelected": ({"Pod": pod, "Node": node},),
        "/autoscaler/NodeReady": ({"NodeName": _NODES[0]},),
        "/autoscaler/estimate": ({"Pods": {"items": [pod]}, "NodeGroups": [group], "Expander": "least-waste"},),
    }


def _questions() -> tuple[Object, ...]:
    """What would happen: with each edit, new pods, new nodes and drained nodes."""
    edit = {"pod": f"{NAMESPACE}/p", "request": "gpu", "claim": "gpu"}
    values = {"count": 2, "deviceClassName": "gpu", "selectors": ["true"], "capacity": {"memory": "1Gi"}}
    new = {"name": "n", "namespace": NAMESPACE, "priority": 1, "count": 2, "requests": [{"name": "gpu", **values}]}
    return (
        {"edits": [{**edit, **values}]},
        {"pods": [new], "nodes": [{"like": _NODES[0], "count": 2, "labels": {"a": "b"}}], "drain": [_NODES[1]]},
    )


class HostileRequests:
    """The requests of a seed.

    Args:
        selectors: how many claims have hostile selectors; see `SELECTOR_CLAIM`.
    """

    def __init__(self, seed: int, selectors: int) -> None:
        self._seed = seed
        self._selectors = selectors
        self._values = HostileValues(seed, "request")
        self._bodies = bodies()
        self._places: tuple[tuple[str, int, Path], ...] = tuple(
            (target, variant, path)
            for target, variants in self._bodies.items()
            for variant, body in enumerate(variants)
            for path in places_in(body)
        )
        makers: dict[Callable[[Random], dict[str, Any]], int] = {
            self._odd_field: 400,
            self._selector: 200,
            self._odd_pod: 80,
            self._odd_body: 70,
            self._odd_query: 100,
            self._odd_header: 60,
            self._odd_path: 40,
            self._broken: 30,
            self._many: 18,
            self._huge: 2,
        }
        self._makers, self._weights = tuple(makers), tuple(makers.values())

    def make(self, number: int) -> HostileRequest:
        """The request of a number."""
        random = Random(f"{self._seed}/request/{number}")
        (maker,) = random.choices(self._makers, self._weights)
        return HostileRequest(number, **maker(random))

    def _target(self, random: Random) -> bytes:
        return random.choice([*self._bodies]).encode()

    def _body(self, random: Random, target: bytes) -> Object:
        found: Object = random.choice(self._bodies[target.decode()])
        return found

    def _odd_field(self, random: Random) -> dict[str, Any]:
        target, variant, path = random.choice(self._places)
        hostile = self._values.at(f"{target}{variant}{path}", random.randrange(1000))
        body = replaced(self._bodies[target][variant], path, hostile)
        told = f"{target}, {'.'.join(map(str, path)) or 'the whole body'}: {hostile.name}"
        return {"told": told, "target": target.encode(), "body": body, "headers": _session(random)}

    def _selector(self, random: Random) -> dict[str, Any]:
        """A well-formed request for a pod whose claim has a hostile selector."""
        number = random.randrange(self._selectors)
        target = random.choice(
            ("/filter", "/filter", "/filter", "/prioritize", "/explain", "/preempt", "/autoscaler/filter")
        )
        pod = _pod(f"of-selector-{number}", SELECTOR_CLAIM.format(number))
        body: Object = {"Pod": pod, "NodeNames": list(_NODES)}
        if target == "/preempt":
            body = {"Pod": pod, "NodeNameToMetaVictims": {_NODES[0]: {"Pods": []}}}
        told = f"{target}, the claim of selector:{number}"
        if random.random() < _WEIGHING:
            # the selector is then learned, and read on the devices of all nodes
            pod["metadata"]["annotations"] = {POLICY: "fragmentation"}
            told += ", policy fragmentation"
        return {"told": told, "target": target.encode(), "body": orjson.dumps(body)}

    def _odd_pod(self, random: Random) -> dict[str, Any]:
        """A request that is well-formed, for a pod with odd names."""
        name, text = random.choice(
            (
                ("a name of 1 MB", "n" * HUGE),
                ("a name with control characters", "\x1b]0;x\x07\x00\r\n\u202e"),
                ("a name with slashes", "../../etc/passwd"),
                ("a name in quotes", '"; DROP\\n'),
                ("a name of percent signs", "%s%n%x{}{0}"),
                ("no ASCII in the name", "🚀" * 1000),
            )
        )
        field_, pod = random.choice(("name", "namespace", "uid", "claim", "node", "label")), _pod("odd", "claim-0")
        if field_ in {"name", "namespace", "uid"}:
            pod["metadata"][field_] = text
        elif field_ == "claim":
            pod["spec"]["resourceClaims"][0]["resourceClaimName"] = text
        elif field_ == "label":
            pod["metadata"]["labels"] = {text: text}
        names = [text, *_NODES[:3]] if field_ == "node" else list(_NODES[:3])
        target = random.choice((b"/filter", b"/prioritize", b"/explain", b"/autoscaler/filter", b"/preempt", b"/bind"))
        body: Object = {"Pod": pod, "NodeNames": names}
        if target == b"/preempt":
            body = {"Pod": pod, "NodeNameToMetaVictims": {each: {"Pods": [{"UID": text}]} for each in names}}
        elif target == b"/bind":
            body = {"PodName": text, "PodNamespace": NAMESPACE, "PodUID": text, "Node": names[0]}
        return {"told": f"{target.decode()}, {field_}: {name}", "target": target, "body": orjson.dumps(body)}

    def _odd_body(self, random: Random) -> dict[str, Any]:
        """A body that is no such thing at all."""
        told, body = random.choice(tuple(_WHOLE.items()))
        target = self._target(random)
        kind = random.choice(
            (b"application/json", b"text/plain", b"", b"application/x-www-form-urlencoded", b"\xff/\xfe")
        )
        headers = ((b"content-type", kind), *_session(random))
        return {"told": f"{target.decode()}, {told}", "target": target, "body": body, "headers": headers}

    def _odd_query(self, random: Random) -> dict[str, Any]:
        told, query = random.choice(tuple(QUERIES.items()))
        target = random.choice((*GETS, *TABLES, *TABLES)).encode()
        accept = random.choice((b"text/plain", b"application/json", b"*/*"))
        headers = ((b"accept", accept),)
        return {
            "told": f"{target.decode()}, query: {told}",
            "method": "GET",
            "target": target + b"?" + query,
            "headers": headers,
        }

    def _odd_header(self, random: Random) -> dict[str, Any]:
        told, headers = random.choice(tuple(HEADERS.items()))
        if random.random() < 0.5:
            target = random.choice(GETS).encode()
            return {"told": f"{target.decode()}, {told}", "method": "GET", "target": target, "headers": headers}
        target = self._target(random)
        body = orjson.dumps(self._body(random, target))
        return {"told": f"{target.decode()}, {told}", "target": target, "body": body, "headers": headers}

    def _odd_path(self, random: Random) -> dict[str, Any]:
        told, target = random.choice(tuple(PATHS.items()))
        method = random.choice(METHODS)
        if random.random() < 0.5:
            told, target = "its path", random.choice((*GETS, *self._bodies)).encode()
        body = orjson.dumps(self._bodies["/filter"][0]) if random.random() < 0.5 else b""
        answered = method not in {"CONNECT", "PRI", "lower", "A" * 100}
        return {
            "told": f"{method[:10]} {told} {target[:40]!r}",
            "method": method,
            "target": target,
            "body": body,
            "answered": answered,
        }

    def _broken(self, random: Random) -> dict[str, Any]:
        told, raw = random.choice(tuple(BROKEN.items()))
        return {"told": f"broken: {told}", "raw": raw, "answered": False}

    def _many(self, random: Random) -> dict[str, Any]:
        """A request with very many of something that is valid."""
        told, target, body = random.choice(_many())
        return {"told": f"{target}, {told}", "target": target.encode(), "body": body}

    def _huge(self, random: Random) -> dict[str, Any]:
        """A body of tens of megabytes, around the limit of 64 MiB."""
        told, make = random.choice(tuple(_TENS_OF_MEGABYTES.items()))
        target = self._target(random)
        return {"told": f"{target.decode()}, {told}", "target": target, "body": make()}


def _session(random: Random) -> tuple[tuple[bytes, bytes], ...]:
    """The header, of a session that there is, or of none."""
    kind = (b"content-type", b"application/json")
    return (kind, (b"session", SESSION)) if random.random() < 0.5 else (kind,)


def _pod(name: str, *claims: str) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "labels": {}}
    entries = [{"name": f"c{index}", "resourceClaimName": each} for index, each in enumerate(claims)]
    return {"metadata": metadata, "spec": {"containers": [{"name": "c"}], "resourceClaims": entries}, "status": {}}


@cache
def _many() -> tuple[tuple[str, str, bytes], ...]:
    """What there is many of, where it is sent, and the body."""
    return tuple((told, target, orjson.dumps(body)) for told, target, body in _of_many())


def _of_many() -> Iterator[tuple[str, str, object]]:
    pod = _pod("many", "claim-0")
    yield "100,000 names", "/filter", {"Pod": pod, "NodeNames": [f"node-{i}" for i in range(100_000)]}
    yield "100,000 times one name", "/filter", {"Pod": pod, "NodeNames": [_NODES[0]] * 100_000}
    yield "100,000 names", "/prioritize", {"Pod": pod, "NodeNames": [f"node-{i}" for i in range(100_000)]}
    yield (
        "5,000 whole nodes",
        "/filter",
        {"Pod": pod, "Nodes": {"items": [specimens.node(f"n-{i}") for i in range(5000)]}},
    )
    yield (
        "1,000 whole nodes",
        "/autoscaler/filter",
        {"Pod": pod, "Nodes": {"items": [specimens.node(f"n-{i}") for i in range(1000)]}},
    )
    yield "1,000 claims", "/filter", {"Pod": _pod("many", *["claim-0"] * 1000), "NodeNames": list(_NODES)}
    yield "100 claims", "/explain", _pod("many", *[f"claim-{i}" for i in range(100)])
    uids = [{"UID": f"u-{i}"} for i in range(10_000)]
    yield (
        "10,000 victims on 10 nodes",
        "/preempt",
        {"Pod": pod, "NodeNameToMetaVictims": {n: {"Pods": uids} for n in _NODES[:10]}},
    )
    groups = [{"Name": f"g{i}", "Template": specimens.node("t"), "Limit": 2**62} for i in range(100)]
    pods = [_pod(f"p-{i}", "claim-0") for i in range(500)]
    yield "500 pods, 100 groups without limits", "/autoscaler/estimate", {"Pods": {"items": pods}, "NodeGroups": groups}
    extended = _pod("many")
    amounts = {f"example.com/{i}": "9" * 30 for i in range(1000)}
    extended["spec"]["containers"] = [{"name": "c", "resources": {"requests": amounts}}]
    yield "1,000 extended resources", "/filter", {"Pod": extended, "NodeNames": list(_NODES)}
    yield "1,000 extended resources", "/explain", extended


_NAMED: Final = b'{"Pod":{"metadata":{"name":"p"}},"NodeNames":'
_NOTHING: Final = ("", "null", "[]", "1", '""', "{", "}", "{}", "true", "\x00", "<xml/>", "a=b", "{} {}")

_WHOLE: Final[Mapping[str, bytes]] = {
    **{text or "nothing": text.encode() for text in _NOTHING},
    **{f"list {depth} deep": deep_list(depth) for depth in DEPTHS},
    **{f"object {depth} deep": deep_object(depth) for depth in DEPTHS},
    **{f"Pod {depth} deep": b'{"NodeNames":[],"Pod":' + deep_object(depth) + b"}" for depth in DEPTHS},
    **{f"names {depth} deep": _NAMED + deep_list(depth) + b"}" for depth in DEPTHS},
    "1,000,000 open brackets": b"[" * _MEGABYTE,
    "1,000,000 brackets": deep_list(_MEGABYTE // 2),
    "Pod with 200,000 brackets": b'{"Pod":{"spec":' + deep_list(100_000) + b'},"NodeNames":[]}',
    "YAML of 60,000 values": b"- a\n" * 60_000,
    "YAML of 60,000 documents": b"---\n" * 60_000,
    "YAML of a megabyte": b"a: " + b"x" * _MEGABYTE,
    "YAML of aliases": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (i, i, b",".join([b"*%c" % (i - 1)] * 9)) for i in range(98, 107)),
    "no UTF-8": b'{"Pod":"\xff\xfe"}',
    "UTF-16": '{"Pod":{}}'.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "escapes": b'{"' + ESCAPES + b'":"' + ESCAPES + b'"}',
    "blanks": b" " * _MEGABYTE,
    "5,000 digits": b"9" * 5000,
    "1 MB of escaped text": b'{"Pod":"' + rb"\u0041" * (_MEGABYTE // 6) + b'"}',
}

_TENS_OF_MEGABYTES: Final[Mapping[str, Callable[[], bytes]]] = {
    "45 MB of []": lambda: b'{"Pod":[' + b"[]," * (15 * _MEGABYTE) + b"[]]}",
    "45 MB of {}": lambda: b'{"NodeNames":[' + b"{}," * (15 * _MEGABYTE) + b"{}]}",
    "40 MB of names": lambda: b'{"Pod":{"metadata":{"name":"p"}},"NodeNames":[' + b'"n",' * (10 * _MEGABYTE) + b'"n"]}',
    "60 MB of one text": lambda: b'{"Pod":"' + b"x" * (60 * _MEGABYTE) + b'"}',
    "30 MB of unknown fields": lambda: b'{"Pod":{"x":[' + b"1," * (15 * _MEGABYTE) + b"1]}}",
    "20 MB of keys": lambda: b"{" + b",".join(b'"k%d":1' % i for i in range(2 * _MEGABYTE)) + b"}",
    "70 MB": lambda: b" " * (70 * _MEGABYTE),
    "20 MB that are no JSON": lambda: b'{"Pod":{"metadata":{"name":"' + b"x" * (20 * _MEGABYTE),
}
