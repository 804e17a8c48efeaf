"""DeviceClasses."""

from collections.abc import Mapping

from allocator.model.device_classes import DeviceClass
from allocator.model.json.common import VERSIONS, ObjectReader, opaque, selectors
from allocator.model.json.device_controllers import read_controller
from allocator.model.json.group_resources import read_group


def parse_device_class(obj: Mapping[str, object]) -> DeviceClass:
    """A DeviceClass of v1, v1beta2 or v1beta1.

    Raises:
        InvalidObjectError: all that is wrong with it.
    """
    reader = ObjectReader("DeviceClass", obj, VERSIONS)
    spec = reader.top.child("spec")
    controller = read_controller(reader.metadata)
    parsed = DeviceClass(
        name=reader.name,
        selectors=selectors(spec),
        configs=tuple(opaque(config) for config in spec.children("config")),
        extended_resource_name=spec.text_or_none("extendedResourceName"),
        created=reader.created,
        controller=controller.name,
        suitable_nodes=controller.suitable_nodes,
        parameters=controller.parameters,
        group=read_group(reader.metadata),
    )
    reader.finish()
    return parsed
