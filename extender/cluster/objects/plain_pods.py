"""What counts of a pod without devices: its node and its CPU. Most pods of a cluster have no devices."""

from collections.abc import Mapping

from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.pod_fields.extended_resources import is_extended
from extender.cluster.pod_fields.gang_annotations import GROUP, GROUP_SIZE
from extender.cluster.resources.cpu import cpu_request
from extender.kube.raw import key_of


def parse_counted_pod(obj: Mapping[str, object]) -> Pod:
    """A core/v1 Pod. Of a pod that uses no devices and names no gang, only what counts is read.

    Raises:
        InvalidObjectError: all fields with a wrong type, if a field that counts or tells of devices is one of them.
    """
    return _read(obj, "") or parse_pod(obj)


def parse_waiting_pod(obj: Mapping[str, object]) -> Pod:
    """A core/v1 Pod that a scheduler asks about. As `parse_counted_pod`, and with its uid.

    Raises:
        InvalidObjectError: as `parse_counted_pod`.
    """
    metadata = obj.get("metadata")
    uid = metadata.get("uid", "") if isinstance(metadata, dict) and "deletionTimestamp" not in metadata else None
    return (_read(obj, uid) if isinstance(uid, str) else None) or parse_pod(obj)


def _read(obj: Mapping[str, object], uid: str) -> Pod | None:
    """What counts; None if the pod has to be read in full."""
    metadata, spec, key = obj.get("metadata"), obj.get("spec"), key_of(obj)
    if not isinstance(metadata, dict) or not isinstance(spec, dict) or not key.name or not _is_plain(metadata, spec):
        return None
    status = obj.get("status") or {}
    node, phase = spec.get("nodeName", ""), status.get("phase", "") if isinstance(status, dict) else None
    if not isinstance(node, str) or not isinstance(phase, str):
        return None
    return Pod(key.namespace or "default", key.name, uid, node_name=node, phase=phase, cpu=cpu_request(spec))


def _is_plain(metadata: Mapping[str, object], spec: Mapping[str, object]) -> bool:
    """Whether a pod certainly uses no devices and names no gang."""
    annotations = metadata.get("annotations") or {}
    if spec.get("resourceClaims") or spec.get("schedulingGroup") or not isinstance(annotations, dict):
        return False
    containers = spec.get("containers") or [], spec.get("initContainers") or []
    return (
        GROUP not in annotations
        and GROUP_SIZE not in annotations
        and all(isinstance(each, list) and all(map(_is_plain_container, each)) for each in containers)
    )


def _is_plain_container(container: object) -> bool:
    resources = (container.get("resources") or {}) if isinstance(container, dict) else None
    if not isinstance(resources, dict):
        return False
    amounts = resources.get("limits") or {}, resources.get("requests") or {}
    return all(isinstance(each, dict) and not any(map(is_extended, each)) for each in amounts)
