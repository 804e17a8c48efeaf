"""Ways to reach the service, and what makes it: HTTP, gRPC, commands, the library, the console, and the processes."""
