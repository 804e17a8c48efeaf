"""A corpus of calls: what the service answers and writes in random worlds, byte by byte: ``python -m tests.corpus``.

It guards a redesign, which changes no answer, and goes when that is done.
"""
