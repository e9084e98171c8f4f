"""Times compared honestly: two runs, a run and its baseline, two stacks in turn. Needs neither JAX nor pytest."""
