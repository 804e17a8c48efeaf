"""Builders of Kubernetes objects."""
