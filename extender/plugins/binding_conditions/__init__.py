"""Devices that have to become ready before their pod is bound."""
