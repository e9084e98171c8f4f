"""Two stacks, each in an environment of its own: what an upgrade changes, and which release brought it."""
