"""Several processes of one command, which find each other, and none of which is waited for in vain."""
