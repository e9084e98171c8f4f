"""What surrounds the train step, from a state's first bytes on disk to its next run."""
