"""Versions of packages, and specifiers that describe some of them."""

from packaging.specifiers import SpecifierSet


def admits(specifier: str, installed: str) -> bool:
    """Whether a version is one of those that a specifier describes; prereleases count by their number."""
    return SpecifierSet(specifier, prereleases=True).contains(installed)
