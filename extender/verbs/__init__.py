"""The verbs of kube-scheduler, one module each, and what they share. No HTTP here."""
