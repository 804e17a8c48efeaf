"""Answers to autoscalers: sessions on a snapshot, nodes that do not exist yet, and plans to add some (KEP-3063)."""
