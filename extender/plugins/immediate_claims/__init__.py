"""Claims that are allocated before any pod needs them."""
