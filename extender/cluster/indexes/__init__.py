"""What a snapshot keeps beside the objects, so that questions need no search."""
