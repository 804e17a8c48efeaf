"""Claims of pods that have a node before they have their claims."""
