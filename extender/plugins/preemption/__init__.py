"""Device preemption: pods of lower priority are evicted for a pod that fits nowhere for want of devices.

There are two ways. kube-scheduler evicts where a pod lacks more than devices: it asks the verb preempt (`plugin`), and
what comes of the offer is followed (`scheduler_evictions`). Where only devices are missing, dra-extender evicts by
itself: a background task (`preemptor`) chooses the node and the victims (`choice`), unless the same was tried in vain
(`fruitless_choices`), keeps the devices for the pod, evicts, and ends what is kept in time (`nominations`).

Both ways make room on a node by the same rules (`evictions`), and within the same limits (`eviction_limits`).
"""
