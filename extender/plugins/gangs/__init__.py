"""Where the pods of a gang go together."""
