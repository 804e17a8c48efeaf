"""DeviceQuotas: what a namespace may be allocated."""
