"""Quantities: what is read, how it prints, how it compares."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allocator import Quantity, Version
from allocator.model.quantity import Format

BINARY, DECIMAL, EXPONENT = Format.BINARY_SI, Format.DECIMAL_SI, Format.DECIMAL_EXPONENT

READ = [
    # text, nano units, canonical text, format
    ("0", 0, "0", DECIMAL),
    ("-0", 0, "0", DECIMAL),
    ("0Ki", 0, "0", BINARY),
    ("1", 10**9, "1", DECIMAL),
    ("+1", 10**9, "1", DECIMAL),
    ("-1", -(10**9), "-1", DECIMAL),
    ("007", 7 * 10**9, "7", DECIMAL),
    (".5", 5 * 10**8, "500m", DECIMAL),
    ("5.", 5 * 10**9, "5", DECIMAL),
    ("1.5", 15 * 10**8, "1500m", DECIMAL),
    ("1.500", 15 * 10**8, "1500m", DECIMAL),
    ("1n", 1, "1n", DECIMAL),
    ("1u", 10**3, "1u", DECIMAL),
    ("100m", 10**8, "100m", DECIMAL),
    ("1000m", 10**9, "1", DECIMAL),
    ("1000", 10**12, "1k", DECIMAL),
    ("12k", 12 * 10**12, "12k", DECIMAL),
    ("1M", 10**15, "1M", DECIMAL),
    ("1G", 10**18, "1G", DECIMAL),
    ("1T", 10**21, "1T", DECIMAL),
    ("1P", 10**24, "1P", DECIMAL),
    ("1E", 10**27, "1E", DECIMAL),
    ("1000E", 10**30, "1000E", DECIMAL),
    ("1Ki", 1024 * 10**9, "1Ki", BINARY),
    ("512Ki", 512 * 1024 * 10**9, "512Ki", BINARY),
    ("1024Ki", 1024**2 * 10**9, "1Mi", BINARY),
    ("1.5Gi", 3 * 2**29 * 10**9, "1536Mi", BINARY),
    ("80Gi", 80 * 2**30 * 10**9, "80Gi", BINARY),
    ("1Ti", 2**40 * 10**9, "1Ti", BINARY),
    ("1Pi", 2**50 * 10**9, "1Pi", BINARY),
    ("1Ei", 2**60 * 10**9, "1Ei", BINARY),
    ("-1.5Ki", -1536 * 10**9, "-1536", BINARY),
    ("0.5Ki", 512 * 10**9, "512", BINARY),
    ("0.0001Ki", 102_400_000, "102400u", DECIMAL),
    ("1e3", 10**12, "1e3", EXPONENT),
    ("1E3", 10**12, "1e3", EXPONENT),
    ("1e-3", 10**6, "1e-3", EXPONENT),
    ("1.5e+2", 150 * 10**9, "150", EXPONENT),
    ("12e6", 12 * 10**15, "12e6", EXPONENT),
]


@pytest.mark.parametrize(("text", "nano", "canonical", "form"), READ)
def test_a_quantity_is_read_and_printed_in_its_canonical_form(
    text: str, nano: int, canonical: str, form: Format
) -> None:
    quantity = Quantity.parse(text)
    assert (quantity.nano, str(quantity), quantity.format) == (nano, canonical, form)


@pytest.mark.parametrize(
    ("text", "nano"),
    [("0.1n", 1), ("1.1n", 2), ("-0.1n", -1), ("-1.1n", -2), ("1e-12", 1), ("0.0000000001", 1), ("0e-20", 0)],
)
def test_amounts_below_nano_are_rounded_away_from_zero(text: str, nano: int) -> None:
    assert Quantity.parse(text).nano == nano


@pytest.mark.parametrize("text", [".", "-", "+.", "Ki", "m", "e3"])
def test_a_text_without_digits_is_zero(text: str) -> None:
    """As it is upstream."""
    assert Quantity.parse(text) == Quantity.from_int(0)


@pytest.mark.parametrize("text", ["8Ei", "9223372036854775808Ki", "1000000Ei"])
def test_binary_amounts_are_capped(text: str) -> None:
    assert Quantity.parse(text) == Quantity.from_int(2**63 - 1)
    assert Quantity.parse(f"-{text}") == Quantity.from_int(-(2**63) + 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "80Gx",
        "1i",
        "1K",
        "1ki",
        "1.2.3",
        "1e",
        "1e+",
        "1e2.5",
        "--1",
        " 1",
        "1 ",
        "1,5",
        "0x1",
        "٣",
    ],
)
def test_a_text_that_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        Quantity.parse(text)


@pytest.mark.parametrize("text", ["1e301", "1e-301", "1e999999999", "9" * 301, f"1.{'0' * 300}1"])
def test_amounts_that_would_fill_the_memory_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="too large or too fine"):
        Quantity.parse(text)


def test_the_error_names_the_text() -> None:
    with pytest.raises(ValueError, match=r'^"80Gx" is not a quantity$'):
        Quantity.parse("80Gx")
    with pytest.raises(ValueError, match=r'^"x{64}\.\.\." is not a quantity$'):
        Quantity.parse("x" * 1000)


def test_quantities_compare_by_value_across_formats() -> None:
    assert Quantity.parse("1Gi") == Quantity.parse("1073741824") == Quantity.parse("1073741.824k")
    assert len({Quantity.parse("1k"), Quantity.parse("1000"), Quantity.parse("1e3")}) == 1
    assert Quantity.parse("1G") < Quantity.parse("1Gi") <= Quantity.parse("1Gi")
    assert Quantity.parse("1Gi") > Quantity.parse("-2Gi") >= Quantity.parse("-2Gi")
    assert Quantity.from_int(1) != 1


@pytest.mark.parametrize(("text", "is_integer"), [("2", True), ("1500m", False), ("1u", False), ("0", True)])
def test_an_amount_without_a_fraction_is_an_integer(text: str, is_integer: bool) -> None:
    assert Quantity.parse(text).is_integer is is_integer


def test_sums_keep_the_first_format_unless_it_is_zero() -> None:
    gibi, kilo, zero = Quantity.parse("1Gi"), Quantity.parse("1k"), Quantity.from_int(0)
    assert str(gibi + gibi) == "2Gi"
    assert str(gibi - Quantity.parse("512Mi")) == "512Mi"
    assert (gibi + kilo).format is BINARY
    assert (zero + gibi).format is BINARY
    assert (zero - gibi).format is BINARY


formats = st.sampled_from(Format)
quantities = st.builds(
    Quantity.from_nano, st.integers(-(2**62), 2**62) | st.integers(-(10**36), 10**36), formats
).filter(lambda q: q.format is not BINARY or abs(q.nano) < 2**63 * 10**9)


@given(quantities)
def test_printing_loses_nothing(quantity: Quantity) -> None:
    assert Quantity.parse(str(quantity)) == quantity


@given(quantities)
@example(
    Quantity.from_int(5000, Format.BINARY_SI)
)  # no power of 1024, so no suffix; and what has none reads as decimal, 5k
def test_what_was_read_prints_the_same_from_then_on(quantity: Quantity) -> None:
    read = Quantity.parse(str(quantity))
    assert str(Quantity.parse(str(read))) == str(read)


@given(quantities, quantities)
def test_arithmetic_and_order_are_those_of_numbers(a: Quantity, b: Quantity) -> None:
    assert (a + b).nano == a.nano + b.nano
    assert a - b == Quantity.from_nano(a.nano - b.nano)
    assert (a < b) == (a.nano < b.nano)
    assert (a == b) == (hash(a) == hash(b) and not a < b and not b < a)


@given(st.text(alphabet="0123456789.+-eEinumkKMGTPx ", max_size=12))
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except ValueError:
        return
    assert Quantity.parse(str(quantity)) == quantity


# Semantic versions: syntax and precedence.


IN_ORDER = [
    "0.0.1",
    "0.9.0",
    "1.0.0-0",
    "1.0.0-9",
    "1.0.0-10",
    "1.0.0--",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.10",
    "1.2.0",
    "10.0.0",
]


def test_versions_are_ordered_by_precedence() -> None:
    versions = [Version.parse(text) for text in IN_ORDER]
    for lower, higher in pairwise(versions):
        assert lower < higher
        assert lower <= higher
        assert higher > lower
        assert higher >= lower
        assert higher != lower


def test_build_metadata_has_no_part_in_the_order() -> None:
    one, other = Version.parse("1.2.3+a"), Version.parse("1.2.3+b.7")
    assert one == other
    assert hash(one) == hash(other)
    assert one <= other <= one
    assert one != "1.2.3+a"


def test_a_version_has_its_parts() -> None:
    version = Version.parse("1.2.3-rc.1-x+build.05")
    assert (version.major, version.minor, version.patch) == (1, 2, 3)
    assert version.prerelease == ("rc", "1-x")
    assert version.build == ("build", "05")
    assert str(version) == version.text == "1.2.3-rc.1-x+build.05"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.2",
        "v1.2.3",
        "1.2.3.4",
        "01.2.3",
        "1.2.03",
        "1.2.3-",
        "1.2.3-01",
        "1.2.3-a..b",
        "1.2.3+",
        "1.2.3 ",
        "-1.0.0",
        "1.2.3-ä",
        # numbers of more than 64 bits
        f"{2**64}.0.0",
        f"1.0.0-{2**64}",
        f"{'9' * 5000}.0.0",
        f"1.0.0-{'9' * 5000}",
    ],
)
def test_a_text_that_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a semantic version"):
        Version.parse(text)


numbers = st.integers(0, 2**64 - 1)


@given(numbers, numbers, numbers)
def test_a_version_prints_as_it_was_read(major: int, minor: int, patch: int) -> None:
    text = f"{major}.{minor}.{patch}"
    version = Version.parse(text)
    assert str(version) == text
    assert (version.major, version.minor, version.patch) == (major, minor, patch)
