"""What is kept for pending pods by name: which devices, and which of them somebody else may have, too."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from immutables import Map

from allocator import FREE, DeviceId, Usage
from extender.cluster.indexes.nested_maps import added, removed
from extender.cluster.objects.pods import Pod


class KeptIndex(NamedTuple):
    """The nominated pods, and the devices that are kept for them. A change makes a new value.

    Attributes:
        unnamed: the uids of the nominated pods for which no device is kept by name.
        in_namespaces: namespace to the uids of its nominated pods.
        users: device to the uids of the pods for which it is kept.
        contested: those of the devices of which a claim holds something, or that are kept for several pods.
    """

    unnamed: Map[str, None] = Map()
    in_namespaces: Map[str, Map[str, None]] = Map()
    users: Map[DeviceId, Map[str, None]] = Map()
    contested: Map[DeviceId, None] = Map()

    def with_pod(self, pod: Pod, usage: Usage) -> "KeptIndex":
        """With a nominated pod that is not there yet."""
        in_namespaces = added(self.in_namespaces, pod.namespace, pod.uid)
        if not pod.kept.devices:
            return self._replace(unnamed=self.unnamed.set(pod.uid, None), in_namespaces=in_namespaces)
        users = self.users
        for device in pod.kept.devices:
            users = added(users, device, pod.uid)
        return self._replace(users=users, in_namespaces=in_namespaces).seen(pod.kept.devices, usage)

    def without_pod(self, pod: Pod, usage: Usage) -> "KeptIndex":
        """Without a nominated pod that is there."""
        in_namespaces = removed(self.in_namespaces, pod.namespace, pod.uid)
        if not pod.kept.devices:
            return self._replace(unnamed=self.unnamed.delete(pod.uid), in_namespaces=in_namespaces)
        users, devices = self.users, set(pod.kept.devices)
        for device in devices:
            users = removed(users, device, pod.uid)
        return self._replace(users=users, in_namespaces=in_namespaces).seen(devices, usage)

    def seen(self, devices: Iterable[DeviceId], usage: Usage) -> "KeptIndex":
        """After the usage of some devices may have changed."""
        contested = self.contested
        for device in devices:
            users = self.users.get(device)
            if users is not None and (len(users) > 1 or usage.device(device) != FREE):
                contested = contested.set(device, None)
            elif device in contested:
                contested = contested.delete(device)
        return self if contested is self.contested else self._replace(contested=contested)

    def rivals(self) -> Collection[str]:
        """The uids of the pods for which a contested device is kept."""
        return {uid for device in self.contested for uid in self.users[device]}
