"""ResourceClasses (KEP-14) as device classes."""
