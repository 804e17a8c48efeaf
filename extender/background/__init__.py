"""Background tasks: work after filter has answered.

Most of it is waking rejected pods. kube-scheduler tries a rejected pod again after events of Pods, Nodes,
ResourceClaims and DeviceClasses, but not after events of ResourceSlices and DeviceTaintRules. It may also have seen an
event, and asked, before we saw it.
"""
