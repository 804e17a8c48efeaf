"""Scheduling gates: a queue before the scheduler's queue.

A policy of the API server gives pods with devices the gate `extender.cluster.objects.pods.GATE` when they are made.
While a pod has it, kube-scheduler and autoscalers leave the pod alone. One replica lifts the gates:

- A pod that no free device can help is held: a try would change nothing.
- All others are lifted in fair turns of their namespaces, within a bound on the lifted pods that have no node.
- Pods that find a node, as far as filter remembers, come first. Pods that find none have a small share of their own,
  so that preemption and autoscalers see them.

All state that matters is on the API server: the gates of pods, and whether their scheduler has rejected them.
"""
