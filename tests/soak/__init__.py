"""What happens to a large cluster in an hour: ``python -m tests.soak``; see docs/reliability.md."""
