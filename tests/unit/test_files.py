"""What is written is whole, or not there; and what cannot be written is named as the user named it."""

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
