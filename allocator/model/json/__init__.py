"""API JSON (resource.k8s.io v1, v1beta2 and v1beta1; core/v1 Node) to values.

An object that can't be used is an `InvalidObjectError` that names all of its problems with their paths. What an
API server would refuse beyond that, `allocator.model.validation` tells.
"""
