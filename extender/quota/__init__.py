"""Quota: how much a namespace may ask for (ResourceQuota), and how much it may be allocated (DeviceQuota)."""
