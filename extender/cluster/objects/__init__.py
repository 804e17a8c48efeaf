"""Watched objects as values: a module for each kind, with the fields that decisions need, and the parser."""
