"""The optional fields of a device, a module each: how the field is read, and what the API server validates of it."""
