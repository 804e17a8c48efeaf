"""The service on HTTP."""
