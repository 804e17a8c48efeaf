"""The functions of CEL, a module per library; `declare` says what a function is.

A new function is an entry in the module of its library. `allocator.cel.environment` lists the libraries.
"""
