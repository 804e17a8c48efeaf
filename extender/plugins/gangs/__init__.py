"""Gangs: pods that get devices together, or none of them.

`plugin` refuses a pod until its gang is ready. The background task (`task`) hears which members filter has rejected
(`rejected_members`), has plans made for their gangs (`plans`), and keeps the devices for the members (`writes`). A plan
(`planner`) gives each pod a seat (`seats`). It tries topology domains (`topology`) one after the other by a search
(`search`) that puts each pod on the best of the nodes that take it (`options`).

What a gang is, and whether its pods may be bound, is read from the conditions of its pods (`gang`, `lost_members`).
`in_part` tells the pods of a gang of which too few have a node.
"""
