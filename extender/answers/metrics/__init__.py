"""What Prometheus reads from the service: a module for each noun that metrics are about."""
