"""The size of the house: lines, modules, layers, and how far one call travels: ``python -m tests.house``."""
