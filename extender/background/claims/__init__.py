"""Claims that no bind serves: of pinned pods, of no pod, lost, orphaned, or late."""
