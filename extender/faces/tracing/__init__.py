"""Spans around verbs, searches and requests, where traces are wanted."""
