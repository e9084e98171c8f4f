"""What is written is whole, or not there; and what cannot be written is named as the user named it."""

import os
from pathlib import Path

import pytest

from meshproof.files import replace_text


def test_a_file_in_no_folder_is_named(tmp_path):
    """Not the temporary file that was to become it."""
    lost = tmp_path / "nowhere" / "report.md"
    with pytest.raises(FileNotFoundError) as raised:
        replace_text(lost, "found")
    assert str(raised.value) == f"[Errno 2] No such file or directory: '{lost}'"


def test_what_cannot_be_replaced_stays(tmp_path):
    """A folder in the place of the file; nothing half-written is left beside it."""
    (tmp_path / "report.md").mkdir()
    with pytest.raises(IsADirectoryError, match=r"report\.md'$"):
        replace_text(tmp_path / "report.md", "found")
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]


def test_a_place_below_a_file_is_named(tmp_path):
    """As the user named it, though no temporary file can be removed there either."""
    (tmp_path / "report.md").write_text("kept")
    with pytest.raises(NotADirectoryError, match=r"report\.md/x'$"):
        replace_text(tmp_path / "report.md" / "x", "found")


def test_what_a_link_points_to_is_written(tmp_path):
    """And the link stays, also one to a file that is not there yet."""
    for name in ("old", "new"):
        (tmp_path / f"to_{name}").symlink_to(name)
    (tmp_path / "old").write_text("old")
    for name in ("old", "new"):
        replace_text(tmp_path / f"to_{name}", "found")
        assert (tmp_path / f"to_{name}").is_symlink() and (tmp_path / name).read_text() == "found"


def test_devices_and_pipes_stay(tmp_path):
    """They are written to."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    replace_text(pipe, "found")
    assert os.read(reading, 9) == b"found" and pipe.is_fifo()
    os.close(reading)
    replace_text(Path("/dev/null"), "found")
    assert Path("/dev/null").is_char_device()
