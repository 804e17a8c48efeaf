"""Admission checks of Kueue: a job is admitted once there are devices for all of its pods.

Kueue counts devices, and does not know which ones exist, are free or fit. An AdmissionCheck whose ``controllerName`` is
`CONTROLLER` has it ask before it admits a job. One replica answers:

- The pods of the job do not exist yet. Stand-ins for them are put on a fork of the cluster, by the code of the verbs.
- If all find devices, the check is ready. Other jobs that ask leave these devices to it, until all of its pods have
  come, or for a limited time. Pods that no check has let in may take them.
- Otherwise the check says why, and since when the job waits. It is looked at again after changes.

All state is on the API server: the entries of the check in the statuses of Workloads, and a label of their pods.
"""

from typing import Final

CONTROLLER: Final = "dra-extender.dev/devices"
"""The controller of AdmissionChecks that are answered here."""
