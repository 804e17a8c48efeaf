"""The clock of a program, set forward and back while it runs."""
