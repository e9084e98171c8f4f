"""One run of pytest: its record, its summary, and which xdist worker runs which tests."""
