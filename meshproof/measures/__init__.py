"""How far something is from what is right."""
