"""Usage over time: devices that claims hold, device-hours, how long pods wait, and what is free but in pieces."""
