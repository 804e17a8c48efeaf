"""Random CEL cases over devices, from a seed: expressions of the right types, and now and then of wrong ones."""

import re
from random import Random
from typing import Any, Final

from tests.conformance.declared import call

Json = dict[str, Any]

_DEVICE: Final[Json] = {
    "driver": "gpu.example.com",
    "allowMultipleAllocations": True,
    "attributes": {
        "model": {"string": "a100"},
        "uni": {"string": "Grüße 世界 🚀"},
        "empty": {"string": ""},
        "index": {"int": 3},
        "neg": {"int": -7},
        "big": {"int": 9007199254740993},
        "ecc": {"bool": False},
        "version": {"version": "550.54.15"},
        "pre": {"version": "1.0.0-rc.1+b5"},
        "names": {"strings": ["l0", "l1", "l2"]},
        "ints": {"ints": [3, 1, 2]},
        "vers": {"versions": ["1.0.0", "2.0.0"]},
        "other.example.com/model": {"string": "x"},
    },
    "capacity": {"memory": {"value": "80Gi"}, "frac": {"value": "1500m"}, "neg": {"value": "-5"}},
}

_A, _C = 'device.attributes["gpu.example.com"]', 'device.capacity["gpu.example.com"]'

_TEMPLATES: Final[dict[str, tuple[str, ...]]] = {
    "bool": (
        *("true", "false", f"{_A}.ecc", "device.allowMultipleAllocations"),
        *("!{bool}", "{bool} && {bool}", "{bool} || {bool}", "({bool} ? {bool} : {bool})", "{bool} == {bool}"),
        *("{int} < {int}", "{int} >= {int}", "{int} == {int}", "{int} != {int}", "{double} > {double}"),
        *("{uint} <= {uint}", "{int} < {double}", "{int} == {double}", "{uint} == {int}"),
        *(
            "{string} == {string}",
            "{string} < {string}",
            "{string}.startsWith({string})",
            "{string}.endsWith({string})",
        ),
        *("{string}.contains({string})", "{string}.matches({regex})", "isQuantity({string})", "isSemver({string})"),
        *("{int} in {ints}", "{string} in {strings}", "{string} in {_A}", "{string} in {map}", "has({map}.a)"),
        *("has({_A}.model)", "has({_A}.nope)", "{ints} == {ints}", "{strings} == {strings}", "{map} == {map}"),
        *("{ints}.all(v, {bool|v:int})", "{ints}.exists(v, {bool|v:int})", "{ints}.exists_one(v, {bool|v:int})"),
        *("{strings}.all(v, {bool|v:string})", "{strings}.exists(v, {bool|v:string})"),
        *(
            "{map}.all(k, {bool|k:string})",
            "{ints}.all(i, v, {bool|i:int,v:int})",
            "{map}.exists(k, v, {bool|k:string,v:int})",
        ),
        *("{ints}.existsOne(i, v, {bool|i:int,v:int})",),
        *(
            "cel.bind(x, {int}, {bool|x:int})",
            "cel.bind(x, {string}, {bool|x:string})",
            "cel.bind(x, {ints}, {bool|x:ints})",
        ),
        *("{quantity} == {quantity}", "{quantity}.isGreaterThan({quantity})", "{quantity}.isLessThan({quantity})"),
        *("{quantity}.isInteger()", "{quantity}.compareTo({quantity}) > 0", "{quantity}.sign() == {int}"),
        *("{semver} == {semver}", "{semver}.isGreaterThan({semver})", "{semver}.isLessThan({semver})"),
        *("{semver}.compareTo({semver}) == 0", "isSemver({string}, {bool})"),
        *("sets.contains({ints}, {ints})", "sets.intersects({strings}, {strings})", "sets.equivalent({ints}, {ints})"),
        *(
            "{ints}.isSorted()",
            "{strings}.isSorted()",
            "isIP({string})",
            "ip.isCanonical({string})",
            "isCIDR({string})",
        ),
        *("{ip}.isLoopback()", "{ip}.isUnspecified()", "{ip}.isGlobalUnicast()", "{ip} == {ip}", "{ip}.family() == 4"),
        *("{cidr}.containsIP({string})", "{cidr}.containsIP({ip})", "{cidr}.containsCIDR({cidr})", "{cidr} == {cidr}"),
        *("isURL({string})", "{url}.getHost() == {string}", "{url} == {url}", "{optional}.hasValue()"),
        *(
            "{optional} == {optional}",
            "{_A}.ints.includes({int})",
            "{_A}.names.includes({string})",
            "{_A}.model.includes({string})",
        ),
        *(
            "type({int}) == int",
            "type({string}) == type({string})",
            "{dyn} == {int}",
            "{dyn} == {string}",
            "null == {dyn}",
        ),
        *("{duration} < {duration}", "{bytes} == {bytes}", "format.dns1123Label().validate({string}).hasValue()"),
        *("{strings} == {strings}.distinct()", "bool({string})", "{ints}.sort() == {ints}"),
        *("{map}.exists_one(k, {bool|k:string})", "{ints}.exists_one(i, v, {bool|i:int,v:int})"),
        *("{ints}.exists(i, v, {bool|i:int,v:int})", "{dyn}.all(v, {bool|v:dyn})", "{dyn}.exists(k, v, {bool|v:dyn})"),
        *("{timestamp} < {timestamp}", "{dyn}.map(v, {int|v:dyn}) == {ints}", "has({dyn}.a)", "{map} == {'a': {dyn}}"),
        *("{optional}.optFlatMap(v, {optional|v:int}) == {optional}", "[?{optional}] == {ints}"),
        *("{'a': 1, ?{string}: {optional}} == {map}", "{strings}.exists(v, v in {strings|v:string})"),
    ),
    "int": (
        *("0", "1", "3", "-2", "9223372036854775807", f"{_A}.index", f"{_A}.neg", f"{_A}.big", f"{_A}.nope"),
        *(
            "{int} + {int}",
            "{int} - {int}",
            "{int} * {int}",
            "{int} / {int}",
            "{int} % {int}",
            "-({int})",
            "({bool} ? {int} : {int})",
        ),
        *(
            "{string}.size()",
            "size({strings})",
            "{map}.size()",
            "{ints}[{int}]",
            "{map}['a']",
            "{map}.b",
            "int({string})",
        ),
        *("int({double})", "int({uint})", "{ints}.sum()", "{ints}.max()", "{ints}.min()", "{ints}.indexOf({int})"),
        *(
            "{strings}.lastIndexOf({string})",
            "{string}.indexOf({string})",
            "{string}.lastIndexOf({string})",
            "{string}.indexOf({string}, {int})",
        ),
        *(
            "{quantity}.asInteger()",
            "{quantity}.sign()",
            "{semver}.major()",
            "{semver}.patch()",
            "{cidr}.prefixLength()",
        ),
        *(
            "{optional}.orValue({int})",
            "{map}[?'a'].orValue({int})",
            "{_A}[?'index'].orValue({int})",
            "{map}.?c.orValue({int})",
        ),
        *(
            "optional.of({int}).value()",
            "{optional}.value()",
            "{int} + {ints}.size()",
            "duration({string}).getSeconds()",
        ),
        *("{semver}.compareTo({semver})", "{_A}.ints[{int}]", "cel.bind(y, {int}, y + y)"),
    ),
    "uint": ("0u", "7u", "uint({int})", "{uint} + {uint}", "{uint} - {uint}", "{uint} * {uint}"),
    "double": (
        "0.5",
        "-1.0",
        "1e300",
        "double({int})",
        "{double} + {double}",
        "{double} / {double}",
        "{quantity}.asApproximateFloat()",
        "double({string})",
    ),
    "string": (
        *("''", "'a'", "'a100'", "'10.0.0.1'", "'1.2.3'", "'10.0.0.0/8'", "'1Gi'", "'12'", "'Über'", "'true'", "'3s'"),
        *("'https://example.com:80/p?q=1'", "device.driver", f"{_A}.model", f"{_A}.uni", f"{_A}.empty"),
        *("'2024-02-29T23:59:59.5Z'", "'Europe/Berlin'", "'-08:30'", "'::1'", "'-1.5h'", "'1.0'", "'-2.50'", "'1e3'"),
        *('device.attributes["other.example.com"].model', 'device.attributes["nope"].x'),
        *(
            "{string} + {string}",
            "({bool} ? {string} : {string})",
            "{string}.upperAscii()",
            "{string}.lowerAscii()",
            "{string}.trim()",
        ),
        *(
            "{string}.charAt({int})",
            "{string}.substring({int})",
            "{string}.substring({int}, {int})",
            "{string}.replace({string}, {string})",
        ),
        *(
            "{string}.replace({string}, {string}, {int})",
            "{strings}.join()",
            "{strings}.join({string})",
            "{strings}[{int}]",
            "string({int})",
        ),
        *(
            "string({bool})",
            "string({double})",
            "string({quantity})",
            "string({semver})",
            "'%s-%d'.format([{string}, {int}])",
            "'%x|%s'.format([{int}, {ints}])",
        ),
        *(
            "{string}.find({regex})",
            "{url}.getHost()",
            "{url}.getScheme()",
            "{url}.getEscapedPath()",
            "string({ip})",
            "string({cidr})",
        ),
        *(
            "string({duration})",
            "string({bytes})",
            "'%.2f'.format([{double}])",
            "'%s'.format([{map}])",
            "{strings}.min()",
            "'%e'.format([{double}])",
            "'%s'.format([[{string}, {double}]])",
            "'%s'.format([{dyn}])",
            "'%s %s'.format([{duration}, {bytes}])",
            "'%f'.format([{dyn}])",
            "'%X'.format([{string}])",
            "'%s'.format([{ints}.map(v, [{string}])])",
            "'%o %b'.format([{int}, {int}])",
        ),
    ),
    "regex": ("'a+'", "'^[a-z]+[0-9]*$'", "'(a|b)*'", "'['", "'l[0-2]'", "'.'", "'\\\\d{2,3}'", "'世'"),
    "ints": (
        *("[]", "[1, 2, 3]", "[3, 3]", f"{_A}.ints", "[{int}, {int}]", "{ints} + {ints}", "{ints}.map(v, {int|v:int})"),
        *("{ints}.filter(v, {bool|v:int})", "{ints}.map(v, {bool|v:int}, {int|v:int})", "({bool} ? {ints} : {ints})"),
        *("{ints}.transformList(i, v, {int|i:int,v:int})", "{map}.transformList(k, v, {int|k:string,v:int})"),
        "{ints}.transformList(i, v, {bool|i:int,v:int}, {int|i:int,v:int})",
        *(
            "{ints}.reverse()",
            "{ints}.slice({int}, {int})",
            "lists.range({int})",
            "[{ints}, {ints}].flatten()",
            "{ints}.distinct()",
        ),
        *("{ints}.sort()", "{ints}.sortBy(v, {int|v:int})", "{ints}.sortBy(v, {string|v:int})"),
    ),
    "strings": (
        *(
            "['a', 'b']",
            "['x', 'x', 'a']",
            f"{_A}.names",
            "[{string}, {string}]",
            "{strings} + {strings}",
            "{string}.split({string})",
        ),
        *(
            "{string}.split({string}, {int})",
            "{strings}.map(v, {string|v:string})",
            "{strings}.filter(v, {bool|v:string})",
        ),
        *("{string}.findAll({regex})", "{string}.findAll({regex}, {int})"),
        *(
            "{strings}.sort()",
            "{strings}.sortBy(v, {int|v:string})",
            "{strings}.reverse()",
            "{strings}.distinct()",
            "[{strings}].flatten()",
        ),
    ),
    "map": (
        *("{'a': 1, 'b': 2}", "{'a': {int}, 'b': {int}}", "{{key}: {int}}", "{'a': 1, ?'c': optional.of({int})}"),
        *("{map}.transformMap(k, v, {int|k:string,v:int})", "{map}.transformMap(k, v, {bool|k:string,v:int}, v)"),
        "{map}.transformMapEntry(k, v, {{string|k:string}: {int|v:int}})",
        "{map}.transformMapEntry(k, v, {bool|v:int}, {k: {int|v:int}})",
    ),
    "key": ("'a'", "'b'", f"{_A}.model"),
    "quantity": (
        *(
            f"{_C}.memory",
            f"{_C}.frac",
            f"{_C}.neg",
            f"{_C}.nope",
            "quantity('1Gi')",
            "quantity('500m')",
            "quantity({string})",
        ),
        *("{quantity}.add({quantity})", "{quantity}.sub({quantity})", "{quantity}.add({int})", "{quantity}.sub({int})"),
    ),
    "semver": (
        f"{_A}.version",
        f"{_A}.pre",
        "semver('1.2.3')",
        "semver({string})",
        "semver('v1.0', true)",
        f"{_A}.vers[{{int}}]",
    ),
    "ip": ("ip('10.0.0.1')", "ip('::1')", "ip({string})", "{cidr}.ip()"),
    "cidr": ("cidr('10.0.0.0/8')", "cidr('fd00::/8')", "cidr({string})", "{cidr}.masked()"),
    "url": ("url('https://example.com:80/p?q=1')", "url({string})"),
    "optional": (
        "optional.of({int})",
        "optional.none()",
        "{map}.?a",
        "{map}[?{string}]",
        "{_A}.?index",
        "{ints}[?{int}]",
        "optional.ofNonZeroValue({int})",
        "{optional}.or({optional})",
        "{optional}.optMap(v, {int|v:int})",
    ),
    "dyn": (
        "dyn({int})",
        "dyn({string})",
        f"{_A}.index",
        f"{_A}.model",
        "null",
        "dyn({ints})",
        "[1, 'a'][{int}]",
        "{_A}[{string}]",
    ),
    "duration": ("duration('3s')", "duration({string})", "duration('1h') + {duration}"),
    "bytes": ("b'abc'", "b''", "bytes({string})", "{bytes} + {bytes}"),
    "timestamp": (
        *("timestamp('2024-02-29T23:59:59.5Z')", "timestamp(0)", "timestamp({string})", "timestamp({int})"),
        *("{timestamp} + {duration}", "{timestamp} - {duration}"),
    ),
    "format": (
        *(
            "format.dns1123Label()",
            "format.uuid()",
            "format.uri()",
            "format.byte()",
            "format.date()",
            "format.datetime()",
        ),
        "format.named('dns1123Subdomain').value()",
    ),
}
_HOLE: Final = re.compile(r"\{([a-z_A]+)(?:\|([a-z:,]+))?\}")
_LEAF: Final = {
    kind: tuple(t for t in texts if not _HOLE.search(t.replace("{_A}", ""))) for kind, texts in _TEMPLATES.items()
}

Scope = tuple[tuple[str, str], ...]


def random_case(seed: int) -> Json:
    """One case, the same for the same seed; ``actual`` is left to whoever answers it."""
    random = Random(seed)
    derived = random.random() < 0.15
    kind = random.choice(("int", "string", "bool", "ints", "strings", "semver", "dyn")) if derived else "bool"
    case: Json = {
        "name": f"random-{seed}",
        "suite": "fuzz",
        "expression": _grown(random, kind, random.choice((1, 2, 2, 3, 3, 4)), ()),
        "envType": random.choice(("StoredExpressions", "NewExpressions")),
        "features": {
            "EnableConsumableCapacity": random.random() < 0.9,
            "EnableListTypeAttributes": random.random() < 0.9,
        },
        "device": _device(random),
    }
    return {**case, "derivedAttribute": True} if derived else case


def _device(random: Random) -> Json:
    """The device, now and then with something missing."""
    attributes = {name: value for name, value in _DEVICE["attributes"].items() if random.random() < 0.97}
    return {**_DEVICE, "attributes": attributes}


def _grown(random: Random, kind: str, depth: int, scope: Scope) -> str:
    """An expression of a type, as deep as that; variables in scope are leaves like others."""
    if kind != "key" and random.random() < 0.01:
        kind = random.choice(sorted(_TEMPLATES))
    variables = [name for name, of in scope if of == kind]
    if variables and random.random() < 0.5:
        return random.choice(variables)
    if kind == "bool" and depth > 0 and random.random() < 0.3:
        result, other = call(random, lambda of: _grown(random, of, depth - 1, scope))
        return random.choice(("({}) == ({})", "type({}) == type({})", "dyn({}) == {}")).format(result, other)
    template = random.choice((depth > 0 and _TEMPLATES[kind]) or _LEAF[kind])

    def hole(match: re.Match[str]) -> str:
        if match[1] == "_A":
            return _A
        bound = tuple((n, k) for n, _, k in (pair.partition(":") for pair in (match[2] or "").split(",") if pair))
        inner = _grown(random, match[1], depth - 1, (*scope, *bound))
        return f"({inner})" if " " in inner else inner

    return _HOLE.sub(hole, template)
