"""Who a caller is and what it may ask for, as the API server says."""
