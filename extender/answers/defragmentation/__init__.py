"""Defragmentation: which pods to move, so that devices that are free in pieces serve a pending pod. Only advice."""
