"""Deterministic simulation: the service's own code in a simulated world, in virtual time, from one seed a history."""
