"""Negotiated claims: controllers are asked where they can allocate, to allocate, and to deallocate."""
