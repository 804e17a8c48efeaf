"""An independent judge of allocated claims. It shares no code with the search but CEL and node selectors."""

from allocator.audit.cluster import Evidence as Evidence
from allocator.audit.cluster import audit as audit
from allocator.audit.cluster import device_findings as device_findings
from allocator.audit.pods import BoundPod as BoundPod
from allocator.audit.pods import pod_findings as pod_findings
from allocator.audit.rules import Finding as Finding
from allocator.audit.second_opinion import Answer as Answer
from allocator.audit.second_opinion import NotChecked as NotChecked
from allocator.audit.second_opinion import Opinion as Opinion
from allocator.audit.second_opinion import SecondEngine as SecondEngine
from allocator.audit.second_opinion import SecondLook as SecondLook
from allocator.audit.second_opinion import SecondOpinion as SecondOpinion
