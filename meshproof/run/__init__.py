"""One run of pytest: its record, its summary, and which worker judges what."""
