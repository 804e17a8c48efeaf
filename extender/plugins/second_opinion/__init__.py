"""The second opinion: cel-python judges the selectors of allocated devices again."""
