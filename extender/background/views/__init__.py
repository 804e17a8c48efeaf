"""What people look at, worked out before they ask."""
