"""The verbs that a kube-scheduler calls: one module each, with no HTTP inside."""
