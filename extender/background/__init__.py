"""Background tasks: work after filter has answered.

Most of it is waking rejected pods. kube-scheduler tries a rejected pod again after events of Pods, Nodes,
ResourceClaims and DeviceClasses, but not after events of ResourceSlices and DeviceTaintRules. It may also have seen an
event, and asked, before we saw it.

A new task is a module with a `task.BackgroundTask`, and an argument of the `runner.BackgroundRunner` that
`extender.assembly` makes. A turn comes several times a second; a task that does something rarely looks at the clock.
"""
