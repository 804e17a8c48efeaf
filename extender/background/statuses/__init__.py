"""Statuses and objects that are kept up with the cluster."""
