"""One self-contained HTML page of a report, or of two with their comparison. Needs no JAX."""

from meshproof.html.page import render_page

__all__ = ["render_page"]
