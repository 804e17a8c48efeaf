"""A live cluster: how its state follows the API server."""
