"""``python -m meshproof`` is ``meshproof``, of the Python that it names."""

from meshproof.cli import app

app(prog_name="meshproof")
