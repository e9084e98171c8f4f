"""Comparison of times: two runs, a run with its baseline, two stacks in turn. Needs neither JAX nor pytest."""
