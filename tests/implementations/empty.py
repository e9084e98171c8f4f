"""A module that forgot its strategies."""
