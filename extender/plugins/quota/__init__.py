"""DeviceQuotas: what a namespace may be allocated.

`plugin` refuses a pod with which its namespace would have too much. It compares the quotas of the pod's namespace
(`pod_quota`): `usage` measures what claims take of a limit, `totals` remembers the sums of what is allocated and of
what is kept for nominated pods (`kept_claims`), and `overrun` tells which limit would be exceeded, with what cohorts
lend.

`borrowers` tells which pods hold lent devices: they are evicted first. `status` writes what is in use into the objects,
and `limit_use` shows it.
"""
