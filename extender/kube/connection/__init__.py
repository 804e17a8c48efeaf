"""A connection to an API server: where it is, who we are, requests and answers as bytes."""
