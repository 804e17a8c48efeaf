"""Fairness: what serves all namespaces has shares and turns for each of them."""
