"""Claims to cores (KEP-3675) as claims to CPU devices."""
