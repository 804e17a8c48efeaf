"""The autoscaler's verbs (KEP-3063), a module each: how a request is read, answered and written, and its documentation.

A new verb is a module here, its line in `extender.autoscaler.verbs.table`, and a method in `extender.client.verbs`.
"""
