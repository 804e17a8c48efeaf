"""The budget of memory for everything that comes from outside."""
