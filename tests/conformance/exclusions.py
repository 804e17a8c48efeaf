"""Cases of cel-spec that Kubernetes' device environment cannot pass, by reason. All others pass."""

from collections.abc import Mapping
from typing import Final

NOT_THERE: Final = "not in the environment of devices (math, encoders, blocks)"
SUITES: Final = frozenset({"block_ext", "encoders_ext", "math_ext"})
"""Whole suites that need functions or macros of ``NOT_THERE``."""

CASES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "a literal list or map has elements of several types": {
        "comparisons/eq_literal": (
            "not_eq_list_null", "eq_list_mixed_type_numbers", "not_eq_list_mixed_type_numbers",
            "not_eq_list_false_vs_types", "not_eq_map_null", "eq_map_mixed_type_numbers", "not_eq_map_false_vs_types",
            "eq_map_value_mixed_types", "not_eq_list_elem_null", "not_eq_map_value_null",
        ),
        "comparisons/in_list_literal": ("elem_in_mixed_type_list", "elem_in_mixed_type_list_cross_type"),
        "comparisons/in_map_literal": ("key_in_mixed_key_type_map", "key_in_mixed_key_type_map_cross_type"),
        "fields/map_fields": (
            "map_key_int64", "map_key_uint64", "map_key_mixed_type", "map_key_mixed_numbers_double_key",
            "map_key_mixed_numbers_uint_key", "map_key_mixed_numbers_int_key", "map_value_mix_type",
        ),
        "fields/quoted_map_fields": ("field_access_dash", "has_field_dash"),
        "fields/in": ("mixed_numbers_and_keys_present", "mixed_numbers_and_keys_absent"),
        "macros/exists": (
            "list_elem_type_shortcircuit", "list_elem_type_exhaustive", "map_key_type_shortcircuit",
            "map_key_type_exhaustive",
        ),
        "macros/all": ("list_elem_type_shortcircuit",),
        "macros2/exists": (
            "list_elem_type_shortcircuit", "list_elem_type_exhaustive", "map_key_type_shortcircuit",
            "map_key_type_exhaustive",
        ),
        "macros2/all": ("list_elem_type_shortcircuit", "list_elem_type_exhaustive"),
        "optionals/optionals": (
            "optional_chaining_13", "map_key_mixed_type_optindex_value",
            "map_key_mixed_numbers_double_key_optindex_value", "map_key_mixed_numbers_uint_key_optindex_value",
            "map_key_mixed_numbers_int_key_optindex_value",
        ),
        "plumbing/check_inputs": ("skip_check",),
    },
    "written for evaluation without a checker": {
        "basic/variables": ("unbound_is_runtime_error",),
        "basic/functions": ("unbound_is_runtime_error",),
        "comparisons/eq_literal": ("not_eq_list_length", "eq_mixed_types", "eq_list_elem_mixed_types"),
        "comparisons/ne_literal": ("ne_mixed_types",),
        "logic/conditional": ("mixed_type",),
        "logic/AND": ("short_circuit_type_left", "short_circuit_type_right"),
        "logic/OR": ("short_circuit_type_left", "short_circuit_type_right"),
    },
    "the newest string extension of cel-go; Kubernetes has version 2, in English": {
        "string_ext/format": (
            "scientific notation formatting clause", "default precision for scientific notation",
            "NaN support for scientific notation",
            "positive infinity support for scientific notation", "negative infinity support for scientific notation",
            "NaN support for decimal", "positive infinity support for decimal", "negative infinity support for decimal",
            "positive infinity support for fixed-point", "negative infinity support for fixed-point",
            "list support for string", "map support for string", "map support (all key types)",
            "dyntype support for scientific notation", "dyntype NaN/infinity support", "dyntype support for lists",
            "dyntype support for maps",
        ),
    },
    "in the environment of devices, a field of a value without fields is absent": {
        "optionals/optionals": ("map_null_entry_no_such_key", "map_present_key_invalid_field"),
    },
    "of entries of a map with equal keys, the last one counts": {
        "fields/qualified_identifier_resolution": ("map_value_repeat_key",),
    },
    "an index that is a constant of a wrong type does not compile": {
        "fields/map_fields": ("map_bad_key_type_or_true", "map_bad_key_type_and_false"),
    },
    "older than cel-go 0.29": {
        "string_ext/value_errors": ("indexof_out_of_range", "lastindexof_out_of_range"),
    },
}  # fmt: skip
"""Single cases: the reason, then suite and name, then sections."""


def reason(case: Mapping[str, str]) -> str | None:
    """The reason why a case is excluded; None if it is not."""
    if case["suite"] in SUITES:
        return NOT_THERE
    path = f"{case['suite']}/{case['name']}"
    return next((why for why, cases in CASES.items() if case["section"] in cases.get(path, ())), None)
