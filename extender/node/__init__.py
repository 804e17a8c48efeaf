"""Drivers on a node: what the kubelet asks, and ResourceSlices. It needs the packages of the extra ``node``."""
