"""ResourceSlices from JSON, and what the API server validates of them."""
