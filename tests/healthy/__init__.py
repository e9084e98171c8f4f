"""Trainers with no fault, written as their users write them: each must pass every clause that can judge it."""
