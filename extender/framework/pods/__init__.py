"""The needs of a pod: its claims and its extended resources."""
