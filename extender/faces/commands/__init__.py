"""The commands of the programs `dra-extender` and `kubectl dra`, and what they share."""
