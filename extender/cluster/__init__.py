"""The cluster as it is known: objects, snapshots, changes."""
