"""The search: what claims ask for, what an attempt has taken, and which device to try next."""
