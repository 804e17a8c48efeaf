"""The values that the allocator works on, their JSON, and the rules of the API server."""
