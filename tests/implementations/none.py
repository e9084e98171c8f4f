"""A module whose strategies() forgot to return them."""


def strategies():
    """Nothing."""
