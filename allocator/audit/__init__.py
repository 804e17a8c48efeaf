"""An independent judge of allocated claims. It shares no code with the search but CEL and node selectors."""
