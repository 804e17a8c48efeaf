"""All that is written to the API server."""
