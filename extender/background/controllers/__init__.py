"""What is to be asked of the controllers of negotiated claims, apart from calls of a scheduler."""
