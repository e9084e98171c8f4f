"""What must hold: one property, one file."""
