"""Who may call: TLS handshakes, credentials, origins."""
