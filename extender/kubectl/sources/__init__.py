"""Who answers a command: the leader through the API server, a URL, or this process."""
