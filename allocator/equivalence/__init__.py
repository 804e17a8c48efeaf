"""Nodes that get the same answer: what a decision depends on, names aside."""

from allocator.equivalence.device_facts import KnownFacts as KnownFacts
from allocator.equivalence.fingerprint import AttributeReads as AttributeReads
from allocator.equivalence.fingerprint import KnownRuns as KnownRuns
from allocator.equivalence.fingerprint import attribute_column as attribute_column
from allocator.equivalence.fingerprint import attribute_columns as attribute_columns
from allocator.equivalence.fingerprint import attribute_reads_of as attribute_reads_of
from allocator.equivalence.fingerprint import common_values as common_values
from allocator.equivalence.fingerprint import device_circumstances as device_circumstances
from allocator.equivalence.fingerprint import interchangeable as interchangeable
from allocator.equivalence.fingerprint import pool_structure as pool_structure
from allocator.equivalence.fingerprint import slice_structure as slice_structure
from allocator.equivalence.selections import selection_of as selection_of
from allocator.equivalence.selections import without_selectors as without_selectors
from allocator.equivalence.single_device import NotFound as NotFound
from allocator.equivalence.single_device import Single as Single
from allocator.equivalence.single_device import is_single as is_single
from allocator.equivalence.single_device import single_of as single_of
