"""CPU, memory and huge pages: what pods request, and what nodes have."""
