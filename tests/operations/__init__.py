"""Random operations on a cluster in this process, with an audit after each of them; see docs/testing.md."""
