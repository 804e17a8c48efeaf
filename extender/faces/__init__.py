"""Ways to reach the service: HTTP, gRPC, commands, the library, the console, and the processes themselves."""
