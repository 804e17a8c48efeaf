"""What a pod needs: its claims and its extended resources."""
