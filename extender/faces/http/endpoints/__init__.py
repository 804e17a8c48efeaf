"""What is served, a module for each kind of endpoint."""
