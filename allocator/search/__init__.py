"""The search: what claims ask for, what a search has taken, and which device to try next."""

from allocator.search.constraints import constraint_class as constraint_class
from allocator.search.constraints import constraint_covers as constraint_covers
from allocator.search.limits import SearchBudget as SearchBudget
from allocator.search.limits import TimedSelectors as TimedSelectors
