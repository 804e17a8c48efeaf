"""How much callers may send, and how fast."""
