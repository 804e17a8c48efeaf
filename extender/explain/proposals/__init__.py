"""Changes that would make a pod fit: found, and tried out."""
