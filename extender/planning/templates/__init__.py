"""What a node that does not exist yet brings: by a node template, or learned from a node of the same group."""
