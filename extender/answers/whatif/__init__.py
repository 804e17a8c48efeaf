"""What if: requests are edited, nodes come or go, and which pods would run where then. Nothing is written."""
