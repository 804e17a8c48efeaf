"""Types of operators and functions that have a plan of their own; the overloads are in cel-go's order."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from allocator.cel.types import BOOL, INT, A, B, Type, list_of, map_of, optional_of

Signature: TypeAlias = tuple[tuple[Type, ...], Type]
"""The types of the arguments, and the type of the result."""

_LIST, _MAP = list_of(A), map_of(A, B)

SIGNATURES: Final[Mapping[str, tuple[Signature, ...]]] = {
    "_?_:_": (((BOOL, A, A), A),),
    "_[_]": (
        ((_LIST, INT), A),
        ((_MAP, A), B),
        ((optional_of(_LIST), INT), optional_of(A)),
        ((optional_of(_MAP), A), optional_of(B)),
    ),
    "_[?_]": (
        ((_LIST, INT), optional_of(A)),
        ((optional_of(_LIST), INT), optional_of(A)),
        ((_MAP, A), optional_of(B)),
        ((optional_of(_MAP), A), optional_of(B)),
    ),
    "or": (((optional_of(A), optional_of(A)), optional_of(A)),),
    "orValue": (((optional_of(A), A), A),),
    "cel.@mapInsert": (((_MAP, A, B), _MAP), ((_MAP, _MAP), _MAP)),
}
"""Signatures by function."""
