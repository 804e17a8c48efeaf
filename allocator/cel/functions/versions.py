"""Semantic versions."""

from typing import Final

from allocator.cel.cost import FIRST, ONE
from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Library, free, function, member
from allocator.cel.types import BOOL, INT, SEMVER, STRING
from allocator.model.semver import Version


def _parse(text: str, normalize: bool = False) -> Version:  # noqa: FBT001, FBT002  # CEL passes it by position
    if normalize:
        text = _normalized(text)
    elif text.count(".") < 2:
        raise EvaluationError("No Major.Minor.Patch elements found")
    try:
        return Version.parse(text)
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _is_semver(text: str, normalize: bool = False) -> bool:  # noqa: FBT001, FBT002  # CEL passes it by position
    try:
        _parse(text, normalize)
    except EvaluationError:
        return False
    return True


def _normalized(text: str) -> str:
    """The version without a leading ``v`` and leading zeros, and with minor and patch."""
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and any(sign in parts[-1] for sign in "+-"):
        raise EvaluationError("short version cannot contain PreRelease/Build meta data")
    return ".".join((*parts, *["0"] * (3 - len(parts))))


def _without_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1] in set("0123456789") else f"0{stripped}"


def _order(left: Version, right: Version) -> int:
    return (right < left) - (left < right)


# Only `<`: the other operators of `Version` are derived from it, and slower.
LIBRARY: Final[Library] = (
    function(
        "semver",
        free(STRING, result=SEMVER, call=_parse),
        free(STRING, BOOL, result=SEMVER, call=_parse),
        cost=FIRST,
    ),
    function(
        "isSemver",
        free(STRING, result=BOOL, call=_is_semver),
        free(STRING, BOOL, result=BOOL, call=_is_semver),
        cost=FIRST,
    ),
    function("major", member(SEMVER, result=INT, call=lambda value: value.major), cost=ONE),
    function("minor", member(SEMVER, result=INT, call=lambda value: value.minor), cost=ONE),
    function("patch", member(SEMVER, result=INT, call=lambda value: value.patch), cost=ONE),
    function("isGreaterThan", member(SEMVER, SEMVER, result=BOOL, call=lambda a, b: b < a), cost=ONE),
    function("isLessThan", member(SEMVER, SEMVER, result=BOOL, call=lambda a, b: a < b), cost=ONE),
    function("compareTo", member(SEMVER, SEMVER, result=INT, call=_order), cost=ONE),
)
