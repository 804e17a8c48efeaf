"""Every library of the device environment, by example: an expression and its value, or how it fails."""

from textwrap import dedent

import pytest

from allocator import Device, DeviceId
from allocator.cel import CompileError, Environment, EvaluationError, compile_expression

DEVICE = Device(DeviceId("gpu.example.com", "pool", "gpu-0"))

TRUE = {
    "quantity": (
        'quantity("1.5Gi") == quantity("1536Mi")',
        'quantity("200m").isLessThan(quantity("1"))',
        'quantity("1Gi").isGreaterThan(quantity("1G"))',
        'quantity("1k").compareTo(quantity("1000")) == 0 && quantity("1").compareTo(quantity("2")) == -1',
        'quantity("1Gi").add(quantity("1Gi")) == quantity("2Gi") && quantity("5").add(-2) == quantity("3")',
        'quantity("1Gi").sub(quantity("1Gi")) == quantity("0") && quantity("5").sub(7) == quantity("-2")',
        'quantity("1e3").isInteger() && quantity("1e3").asInteger() == 1000',
        '!quantity("1500m").isInteger() && quantity("1500m").asApproximateFloat() == 1.5',
        'sign(quantity("-3")) == -1 && sign(quantity("0")) == 0',
        'isQuantity("20Mi") && !isQuantity("20Mib") && !isQuantity("") && isQuantity("302E3530")',
        'quantity("0.3").asApproximateFloat() == 3.0 * 0.1 && quantity("300m").asApproximateFloat() == 0.3',
        '!quantity("1.0").isInteger() && quantity("1.0").add(quantity("-1.0")).sub(quantity("5")).isInteger()',
        '!quantity("100000000000Ki").add(1).isInteger() && !quantity("12Ei").isInteger()',
        'quantity("1").add(quantity("1500m")).asApproximateFloat() == 2.5',
        'quantity("1e40").asApproximateFloat() == 1e40 && quantity("1e22").asApproximateFloat() == 1e22',
        'quantity("9223372036854775807").add(1).asApproximateFloat() == 9223372036854775808.0',
    ),
    "semver": (
        'semver("1.2.3").major() == 1 && semver("1.2.3").minor() == 2 && semver("1.2.3").patch() == 3',
        'semver("1.10.0").isGreaterThan(semver("1.9.9")) && semver("1.0.0-rc.1").isLessThan(semver("1.0.0"))',
        'semver("1.0.0+a") == semver("1.0.0+b") && semver("1.0.0").compareTo(semver("1.0.1")) == -1',
        'semver("v1.2", true) == semver("1.2.0") && semver("01.02.03", true) == semver("1.2.3")',
        'isSemver("1.2.3") && !isSemver("1.2") && isSemver("v1", true) && !isSemver("1-rc", true)',
    ),
    "strings": (
        '"Grüße".size() == 5 && size("🚀") == 1',
        '"abc".contains("bc") && "abc".startsWith("ab") && "abc".endsWith("bc") && !"abc".contains("x")',
        '"abc".charAt(1) == "b" && "abc".charAt(3) == ""',
        '"hello".indexOf("l") == 2 && "hello".indexOf("l", 3) == 3 && "hello".lastIndexOf("l") == 3',
        '"ÄbC".lowerAscii() == "Äbc" && "äbc".upperAscii() == "äBC" && "\\u00a0 x\\t".trim() == "x"',
        '"a,b,c".split(",") == ["a", "b", "c"] && "a,b,c".split(",", 2) == ["a", "b,c"] && "a".split(",", 0) == []',
        '"abc".split("") == ["a", "b", "c"] && ["a", "b"].join("-") == "a-b" && ["a", "b"].join() == "ab"',
        '"banana".replace("a", "o") == "bonono" && "banana".replace("a", "o", 1) == "bonana"',
        '"banana".substring(2) == "nana" && "banana".substring(1, 3) == "an"',
        'strings.quote("a\\"b\\n") == "\\"a\\\\\\"b\\\\n\\""',
        '"%s has %d of %.2f, 100%%".format([dyn("gpu"), 3, 1.5]) == "gpu has 3 of 1.50, 100%"',
        '"%x %X %o %b".format([dyn(255), "z", 8, true]) == "ff 7A 10 1"',
        '"%s %s".format([[1, 2], {"b": dyn(1), "a": null}]) == "[1, 2] {\\"a\\":null, \\"b\\":1}"',
        '"%s %s".format([2.5, [dyn(2.5), b"x", "\\t"]]) == "2.5 [2.500000, b\\"x\\", \\"\\\\t\\"]"',
        '"%s %s".format([duration("3s"), [duration("3s")]]) == "3s [duration(\\"3s\\")]"',
        '"%.1f %f %f".format([1234567.89, "NaN", "-Infinity"]) == "1,234,567.9 NaN -∞"',
        '"%e %.1e".format([1.5, 0.0025]) == "1.500000\\u00d710⁰⁰ 2.5\\u00d710⁻⁰³"',
        '"abc".indexOf("c", 9) == -1 && "abc".indexOf("", 9) == 3 && "abc".lastIndexOf("a", 9) == -1',
    ),
    "regex": (
        '"gpu-17".matches("^gpu-[0-9]+$") && matches("abc", "b")',
        '"abc 123".find("[0-9]+") == "123" && "abc".find("[0-9]+") == ""',
        '"ab-b".findAll("b*") == ["", "b", "b"]',
        '"a1b22c333".findAll("[0-9]+") == ["1", "22", "333"] && "a1b22c333".findAll("[0-9]+", 2) == ["1", "22"]',
    ),
    "lists": (
        "[1, 2, 2].isSorted() && ![2, 1].isSorted() && ['a', 'b'].isSorted()",
        "[1, 2, 3].sum() == 6 && [1.5, 2.5].sum() == 4.0 && [1, 3, 2].max() == 3 && ['b', 'a'].min() == 'a'",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(2) == -1",
        "[dyn(semver('1.0.0'))].indexOf(dyn(-1.0)) == -1 && [dyn(semver('1.0.0'))].lastIndexOf(dyn('a')) == -1",
        "[1, 2].includes(1) && !['a'].includes('b') && 'a'.includes('a') && !'ab'.includes('a')",
        "[1, 2].first() == optional.of(1) && ['a', 'b'].last().value() == 'b' && ![].first().hasValue()",
        "2 in [1, 2] && !(3 in [1, 2]) && 'a' in {'a': 1} && [1] + [2] == [1, 2]",
    ),
    "sequences": (
        "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [1, 2].reverse() == [2, 1] && lists.range(3) == [0, 1, 2]",
        "[[1], [2, 3]].flatten() == [1, 2, 3] && [[[1]], [[2]]].flatten(9) == [1, 2] && [[1]].flatten(0) == [[1]]",
        "['b', 'a', 'b'].distinct() == ['b', 'a'] && [dyn(1), dyn(1u), dyn(1.0), dyn('a')].distinct().size() == 2",
        "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b'] && [true, false].sort() == [false, true]",
        "['bb', 'a', 'ccc'].sortBy(x, -(x.size())) == ['ccc', 'bb', 'a'] && [].sortBy(x, x) == []",
    ),
    "sets": (
        "sets.contains([1, 2, 3], [3, 1]) && !sets.contains([1], [2])",
        "sets.equivalent([1, 2], [2, 1, 1]) && sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [])",
    ),
    "url": (
        'url("https://example.com:8080/a/b?x=1&x=2").getPort() == "8080"',
        'url("https://example.com:8080/a%20b?x=1&x=2").getQuery()["x"] == ["1", "2"]',
        'url("https://user@example.com/a").getHost() == "example.com" && url("/path").getScheme() == ""',
        'url("https://[::1]:80/").getHostname() == "::1"',
        'url("https://a/b c".replace(" ", "%20")).getEscapedPath() == "/b%20c"',
        'isURL("https://example.com") && !isURL("example.com") && !isURL("")',
    ),
    "ip and cidr": (
        'ip("192.168.0.1").family() == 4 && ip("::1").family() == 6 && isIP("10.0.0.1") && !isIP("10.0.0.256")',
        'ip("127.0.0.1").isLoopback() && ip("::").isUnspecified() && ip("224.0.0.1").isLinkLocalMulticast()',
        'ip("169.254.1.1").isLinkLocalUnicast() && ip("8.8.8.8").isGlobalUnicast()',
        '!ip("127.0.0.1").isGlobalUnicast()',
        'ip.isCanonical("::1") && !ip.isCanonical("0:0::1") && !isIP("::ffff:1.2.3.4") && string(ip("::1")) == "::1"',
        'cidr("10.1.2.3/8").masked() == cidr("10.0.0.0/8") && cidr("10.1.2.3/8").ip() == ip("10.1.2.3")',
        'cidr("10.0.0.0/8").containsIP("10.9.9.9") && !cidr("10.0.0.0/8").containsIP(ip("11.0.0.1"))',
        'cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16") && !cidr("10.0.0.0/16").containsCIDR(cidr("10.0.0.0/8"))',
        'cidr("::/64").prefixLength() == 64 && isCIDR("10.0.0.0/8") && !isCIDR("10.0.0.0") && !isCIDR("10.0.0.0/33")',
        'string(cidr("10.1.2.3/8")) == "10.1.2.3/8"',
    ),
    "format": (
        '!format.dns1123Label().validate("my-label").hasValue() && format.dns1123Label().validate("My").hasValue()',
        '!format.dns1123LabelPrefix().validate("my-").hasValue() && format.dns1123Label().validate("my-").hasValue()',
        '!format.dns1123Subdomain().validate("a.b").hasValue()',
        'format.dns1123Subdomain().validate("a..b").hasValue()',
        '!format.dns1035Label().validate("a1").hasValue() && format.dns1035Label().validate("1a").hasValue()',
        '!format.qualifiedName().validate("a.b/C_d").hasValue() && format.qualifiedName().validate("a/b/c").hasValue()',
        '!format.labelValue().validate("").hasValue() && format.labelValue().validate("-").hasValue()',
        '!format.uri().validate("https://a").hasValue() && format.uri().validate("a").hasValue()',
        '!format.uuid().validate("123e4567-e89b-12d3-a456-426614174000").hasValue()',
        'format.uuid().validate("1").hasValue()',
        '!format.byte().validate("aGVsbG8=").hasValue() && format.byte().validate("?").hasValue()',
        '!format.date().validate("2021-01-31").hasValue() && format.date().validate("2021-02-30").hasValue()',
        'format.date().validate("20210131").hasValue()',
        '!format.datetime().validate("2021-01-01T00:00:00Z").hasValue()',
        'format.datetime().validate("2021").hasValue()',
        'format.named("uuid").hasValue() && !format.named("nothing").hasValue()',
    ),
    "optionals": (
        "optional.of(1).hasValue() && !optional.none().hasValue() && optional.of(1).value() == 1",
        "optional.ofNonZeroValue(0).or(optional.of(2)).value() == 2 && optional.none().orValue(3) == 3",
        "{'a': 1}.?a.orValue(0) == 1 && {'a': 1}[?'b'].orValue(7) == 7 && [1][?3].orValue(9) == 9",
        "{'a': {'b': 1}}.?a.b == optional.of(1) && {?'a': optional.none()} == {} && [?optional.of(1)] == [1]",
        "optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of('a')].unwrapOpt() == ['a']",
        "optional.ofNonZeroValue(timestamp(0)).hasValue() && !optional.ofNonZeroValue(duration('0s')).hasValue()",
        "!optional.ofNonZeroValue(timestamp('0001-01-01T00:00:00Z')).hasValue()",
        "!has(dyn(1).a) && !has(dyn('a').b) && !has(dyn({'a': 1}).a.b)",
        "{'a': 1, 'a'.trim(): 2} == {'a': 2} && {'a': 1, 'a': 2} == {'a': 2} && {'a': 1, ?'a': optional.none()} == {}",
        "optional.of(2).optMap(x, x * 2) == optional.of(4)",
        "optional.of(2).optFlatMap(x, optional.of(x)).value() == 2",
    ),
    "comprehensions": (
        "[1, 2, 3].all(x, x > 0) && [1, 2, 3].exists(x, x == 2) && [1, 2, 3].exists_one(x, x > 2)",
        "[1, 2, 3].map(x, x * 2) == [2, 4, 6] && [1, 2, 3].map(x, x > 1, x * 2) == [4, 6]",
        "[1, 2, 3].filter(x, x > 1) == [2, 3] && {'a': 1}.map(k, k) == ['a'] && {'a': 1}.all(k, k == 'a')",
        "[5, 6].all(i, v, v == i + 5) && {'a': 1}.exists(k, v, k == 'a' && v == 1) && [1, 2].existsOne(i, v, v > 1)",
        "[3, 4].transformList(i, v, i * v) == [0, 4] && [3, 4].transformList(i, v, i > 0, v) == [4]",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2} && {'a': 1}.transformMap(k, v, v > 1, v) == {}",
        "{'a': 'b'}.transformMapEntry(k, v, {v: k}) == {'b': 'a'}",
        "cel.bind(x, 3, x * x) == 9 && cel.bind(x, 1 / 0, true)",
    ),
    "times": (
        'timestamp("2009-02-13T23:31:30Z").getFullYear() == 2009',
        'timestamp("2009-02-13T23:31:30Z").getDayOfWeek() == 5',
        'timestamp("2009-02-13T23:31:30Z") + duration("30s") == timestamp("2009-02-13T23:32:00Z")',
        'duration("1h30m").getMinutes() == 90 && duration("-1.5s") < duration("0s")',
        'string(duration("90s")) == "90s"',
        'duration("3.5s").getMilliseconds() == 3500 && timestamp("2024-01-01T00:00:03.5Z").getMilliseconds() == 500',
    ),
    "conversions": (
        'int("42") == 42 && int(3.9) == 3 && uint(3) == 3u && double("1.5") == 1.5 && bool("true")',
        'string(42) == "42"',
        'string(1.0) == "1" && string(1e100) == "1e+100" && string(b"abc") == "abc" && bytes("a") == b"a"',
        "type(1) == int && type(1u) == uint && type([]) == list && type(null) == null_type && type(type(1)) == type",
        'type(ip("::1")) == net.IP && type(cidr("::/0")) == net.CIDR',
    ),
}

FAILING = {
    'quantity("abc")': "quantities must match",
    'quantity("1500m").asInteger()': "cannot convert value to integer",
    'semver("1.2")': "No Major.Minor.Patch elements found",
    '"abc".charAt(4)': "index out of range: 4",
    '"abc".substring(2, 1)': "invalid substring range",
    '"%d".format([dyn("a")])': "decimal clause cannot take string",
    '"%d %d".format([1].map(x, x))': "index 1 out of range",
    '"%.2000f".format([1.0].map(x, x))': "precision is missing or too large",
    '"%f".format([dyn(1)])': "fixed-point clause cannot take int",
    "[1, 2].slice(1, 3)": "cannot slice(1, 3) a list of length 2",
    "lists.range(-1)": "size must be non-negative",
    "[dyn(1), dyn('a')].sort()": "must have the same type",
    '"abc".indexOf("a", -1)': "index out of range: -1",
    'quantity("1") == quantity("2").sub(quantity("1"))': "no such overload",
    "[].max()": "max called on empty list",
    "optional.none().value()": "optional.none() dereference",
    "dyn([1]).distinct().all(v, uint(v) == 1u)": "no such overload",
    "optional.unwrap([dyn(1)]) == []": "no such overload",
    "[dyn(optional.of(1)), dyn(2)].unwrapOpt() == []": "value 2 is not optional",
    "9223372036854775807 + 1": "integer overflow",
    "-9223372036854775808 / -1": "integer overflow",
    "1u - 2u": "unsigned integer overflow",
    "1 / 0": "division by zero",
    "1 % 0": "modulus by zero",
    "[1][1]": "index out of bounds: 1",
    "{'a': 1}.b": "no such key: b",
    "{'a': 1}['b']": "no such key: b",
    "dyn('a') > 1": "no such overload",
    "dyn(1).startsWith('a')": "no such overload",
    "'a'.matches(dyn(1))": "no such overload",
    "'a'.find(dyn([])) == ''": "no such overload",
    "'a'.findAll(dyn(null)) == []": "no such overload",
    "dyn(1).exists(x, x)": "expected iterable type",
    'ip("10.0.0")': "parse error",
    'url("nothing")': "invalid URI",
    'semver("1.0.0") == dyn("1.0.0")': "no such overload",
}


@pytest.mark.parametrize("expression", [text for texts in TRUE.values() for text in texts])
def test_expression_is_true(expression: str) -> None:
    program = compile_expression(expression, Environment())
    assert program.measure(DEVICE).error is None
    assert program.measure(DEVICE).value is True
    assert program.evaluate(DEVICE) is True


@pytest.mark.parametrize(("expression", "message"), FAILING.items())
def test_expression_compiles_and_fails_at_run_time(expression: str, message: str) -> None:
    program = compile_expression(expression, Environment())
    assert message in str(program.measure(DEVICE).error)
    with pytest.raises(EvaluationError, match=message.replace("(", r"\(").replace(")", r"\)")):
        program.evaluate(DEVICE)


@pytest.mark.parametrize(
    "expression",
    [
        '"abc".reverse()',
        "math.abs(-1) == 1",
        "cel.block([1], cel.index(0)) == 1",
        'quantity("1") > quantity("2")',
        'quantity("1").sign()',
        '"a" == 1',
        '"a" in "abc"',
        '[1, "a"]',
        '{1: "a", "b": "c"}',
        '"x".matches("(")',
        'duration("soon")',
        '"%d".format(["a"])',
        '"%d %d".format([1])',
        '"%d".format([1, 2])',
        '"%y".format([1])',
        '"%s".format([[optional.of(1)]])',
        "0.5.sortBy(x, x)",
        "[1].existsOne(x, x == 1)",
        'int("abc")',
        "1 + 1.0",
        "!1",
        "google.protobuf.Any{}",
    ],
)
def test_expression_that_kubernetes_refuses_does_not_compile(expression: str) -> None:
    with pytest.raises(CompileError):
        compile_expression(expression, Environment())


# Errors say where, show it with a caret, and suggest what may have been meant.


SHOWN = {
    "1 +": """\
        1:4: Syntax error: unexpected end of the expression
         | 1 +
         | ...^""",
    'devise.driver == "x"': """\
        1:1: undeclared reference to 'devise'; did you mean 'device'?
         | devise.driver == "x"
         | ^""",
    'device.drivr == "x"': """\
        1:7: undefined field 'drivr'; did you mean 'driver'?
         | device.drivr == "x"
         | ......^""",
    'true &&\n  quantty("1Gi") == 1': """\
        2:3: undeclared reference to 'quantty'; did you mean 'quantity'?
         |   quantty("1Gi") == 1
         | ..^""",
    '"a" == 1': """\
        1:5: found no matching overload for '_==_' applied to '(string, int)'
         | "a" == 1
         | ....^""",
    'device.driver.startWith("a")': """\
        1:15: undeclared reference to 'startWith'; did you mean 'startsWith'?
         | device.driver.startWith("a")
         | ..............^""",
    '"a\\qb"': """\
        1:1: invalid escape sequence \\q
         | "a\\qb"
         | ^""",
    "99999999999999999999": """\
        1:1: invalid int literal: 99999999999999999999 does not fit 64 bits
         | 99999999999999999999
         | ^""",
    "[1].all(1, true)": """\
        1:9: argument must be a simple name
         | [1].all(1, true)
         | ........^""",
    "has(device)": """\
        1:5: invalid argument to has() macro
         | has(device)
         | ....^""",
    "for": """\
        1:1: reserved identifier: for
         | for
         | ^""",
}


@pytest.mark.parametrize(("expression", "text"), SHOWN.items())
def test_compile_error_shows_the_fault_with_a_caret(expression: str, text: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_expression(expression, Environment())
    assert str(caught.value) == dedent(text)


def test_compile_error_has_position_message_and_expression() -> None:
    with pytest.raises(CompileError) as caught:
        compile_expression("true &&\n x", Environment())
    error = caught.value
    assert (error.line, error.column, error.message) == (2, 2, "undeclared reference to 'x'")
    assert error.expression == "true &&\n x"


def test_compile_error_shows_only_part_of_a_long_line() -> None:
    with pytest.raises(CompileError) as caught:
        compile_expression(f'"{"a" * 500}" == 1', Environment())
    assert max(map(len, str(caught.value).splitlines())) < 150


@pytest.mark.parametrize("expression", ["\ud800", '"\ud800"', "\x00", '"\x00" +', "`", "é"])
def test_invalid_text_is_a_compile_error_that_can_be_printed(expression: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_expression(expression, Environment())
    assert str(caught.value).encode()


TOPOLOGY = 'device.attributes["gpu.example.com"].topology'


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ('[1, "a"] == []', "expected type 'int' but found 'string'"),
        (f'[{TOPOLOGY}, "numa-1"] == []', "expected type 'dyn' but found 'string'"),
        (f'["numa-1", {TOPOLOGY}] == []', "expected type 'string' but found 'dyn'"),
        (f'{{"a": 1, "b": {TOPOLOGY}}} == {{}}', "expected type 'int' but found 'dyn'"),
    ],
)
def test_literal_with_elements_of_two_types_does_not_compile(expression: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile_expression(expression, Environment())


@pytest.mark.parametrize(
    "expression",
    [
        "[[], [1]] == []",
        f"[{TOPOLOGY}, {TOPOLOGY}] == []",
        f'"%s %d %s".format([{TOPOLOGY}, 1, "a"]) == ""',
    ],
)
def test_literal_of_one_type_and_arguments_of_format_compile(expression: str) -> None:
    assert compile_expression(expression, Environment()).type.name == "bool"
