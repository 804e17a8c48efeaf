"""Semantic versions: syntax and precedence."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import Version

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
