"""The console: what a browser shows of the service, and how it stays up to date."""
