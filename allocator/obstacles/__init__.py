"""Why a device does not serve a request: everything that speaks against it, with what was needed and what was seen."""
