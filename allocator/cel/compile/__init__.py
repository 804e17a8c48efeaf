"""A checked expression to closures: metered as the reference, direct as the fast way."""
