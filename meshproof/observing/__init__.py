"""One case, seen once, in a process of its own."""
