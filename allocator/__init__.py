"""Structured-parameters allocation for Dynamic Resource Allocation: the mathematics, without any I/O."""
