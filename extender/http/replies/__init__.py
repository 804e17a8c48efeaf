"""How replies are made and sent."""
