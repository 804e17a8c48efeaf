"""DeviceQuotas: how much of its devices a namespace is allocated, and whether it may have more."""
