"""The functions of CEL, a module per library; `declare` says what a function is."""
