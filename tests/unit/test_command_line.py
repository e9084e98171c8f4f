"""What the command says of itself."""

from importlib.metadata import version

from typer.testing import CliRunner

from meshproof.cli import app


def test_the_version_is_told():
    """And nothing else is done."""
    told = CliRunner().invoke(app, ["--version"])
    assert told.exit_code == 0 and told.output == f"meshproof {version('meshproof')}\n"
