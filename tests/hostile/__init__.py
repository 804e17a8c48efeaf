"""The service among hostile objects, selectors and requests: ``python -m tests.hostile``; see docs/testing.md."""
