"""Waking: pods that were rejected are tried again when devices appear that could serve them.

kube-scheduler tries a pod that an extender rejected again after events of Pods, Nodes, ResourceClaims and
DeviceClasses, but not of ResourceSlices and DeviceTaintRules; and it may have seen an event, and asked, before we did.
"""
