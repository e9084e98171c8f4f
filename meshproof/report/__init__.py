"""The record of a run: its format, and how it is read and written. Needs no JAX."""
