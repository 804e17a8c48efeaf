"""Claims that a bind has left behind, or that are deleted while a pod uses them."""
