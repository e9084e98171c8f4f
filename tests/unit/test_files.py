"""What is written is whole, or not there; and what cannot be written is named as the user named it."""

import os
from pathlib import Path

import pytest

from meshproof.files import check_apart, check_folder_writable, check_writable, is_stream, replace_text


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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("folder", ": this is a folder; name a file in it"),
        ("file/x.html", r": no file can be written in .*/file \(Not a directory\); name a folder that exists"),
        ("gone/x.html", r": no file can be written in .*/gone \(No such file or directory\); name a folder"),
        ("astray", r": no file can be written in .*/gone \(No such file or directory\); name a folder"),
    ],
)
def test_what_no_file_can_be_written_to_is_refused(tmp_path, name, message):
    """With the option and its value, and what to do; of a link what it points to is asked."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    (tmp_path / "astray").symlink_to("gone/x.html")
    with pytest.raises(ValueError, match=f"^--output {tmp_path / name}{message}"):
        check_writable(tmp_path / name, "--output")


def test_links_devices_and_pipes_can_be_written_to(tmp_path, monkeypatch):
    """As `replace_text` writes to them: a link also out of a folder in which no file can be made."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "link").symlink_to(tmp_path / "new")
    (tmp_path / "kept" / "pipe").symlink_to(tmp_path / "pipe")
    monkeypatch.setattr("meshproof.files.unfillable", lambda folder: "no right" if folder.name == "kept" else None)
    for path in ("/dev/null", tmp_path / "pipe", tmp_path / "kept" / "link", tmp_path / "kept" / "pipe"):
        check_writable(Path(path))
    with pytest.raises(ValueError, match="no right"):
        check_writable(tmp_path / "kept" / "file")


def test_a_device_is_asked_itself(monkeypatch):
    """No file is made beside it, for which a user has no right."""
    monkeypatch.setattr("meshproof.files.unfillable", lambda folder: "Permission denied")
    check_writable(Path("/dev/null"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ValueError, match=r"^--json /dev/null: this device or pipe cannot be written to"):
        check_writable(Path("/dev/null"), "--json")


def test_a_file_in_memory_is_a_file():
    """What stands directly in /dev, or is open, is a device; what is below /dev/shm is replaced as any other."""
    assert is_stream(Path("/dev/stdout")) and is_stream(Path("/dev/fd/1"))
    assert not is_stream(Path("/dev/shm/report.json"))  # noqa: S108 - only its name


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    """In the place of a file, or below one; one that can be made is not made yet."""
    (tmp_path / "file").write_text("kept")
    for name in ("file", "file/below/it"):
        told = rf"^--output {tmp_path / name}: nothing can be written in {tmp_path / 'file'} \(Not a directory\); name"
        with pytest.raises(ValueError, match=told):
            check_folder_writable(tmp_path / name, "--output")
    check_folder_writable(tmp_path / "new" / "folder", "--output")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_would_overwrite_another_is_refused(tmp_path):
    """Two options of one file, also by another path, and a file that is read; a stream takes several."""
    one, same = tmp_path / "one", tmp_path / "below" / ".." / "one"
    with pytest.raises(ValueError, match=r"^--markdown .*one: --json writes this file, which would be overwritten"):
        check_apart({"--json": one, "--junit": None, "--markdown": same})
    with pytest.raises(ValueError, match=r"^--json .*one: the command reads this file, which would be overwritten"):
        check_apart({"--json": same}, [one])
    (tmp_path / "loop").symlink_to("loop")
    check_apart({"--json": tmp_path / "loop"})
    check_writable(tmp_path / "loop")
    check_apart(dict.fromkeys(("--json", "--markdown"), Path("/dev/stdout")) | {"--junit": one})
