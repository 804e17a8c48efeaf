"""Kube-scheduler's JSON."""
