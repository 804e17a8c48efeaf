"""The search: what claims ask for, what a search has taken, and which device to try next."""
