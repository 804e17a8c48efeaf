"""NodeReady: which drivers are expected on a new node, and whether they have published all their slices."""
