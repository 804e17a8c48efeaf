"""Which rejected pods fit now, and waking them."""
