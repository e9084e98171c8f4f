"""Compiled programs are kept for the stack and the flags that made them, and no more than the cache may hold."""

import errno
import os
from types import SimpleNamespace

import pytest

from meshproof.run import compile_cache
from meshproof.run.compile_cache import open_cache, trim_cache


def keep(folder, name, size, age):
    """An entry that was used ``age`` seconds ago."""
    path = folder / f"{name}-cache"
    path.write_bytes(bytes(size))
    os.utime(path, (1e9 - age, 1e9 - age))
    return path


def test_each_stack_has_its_folder(tmp_path, monkeypatch):
    """Other flags, or another build of the same version of jaxlib, see none of these programs."""
    folders = [open_cache(tmp_path, ""), open_cache(tmp_path, ""), open_cache(tmp_path, "--xla_a=1")]
    rebuilt = SimpleNamespace(version="0.0.1", read_text=lambda name: f"{name} of another build")
    monkeypatch.setattr(compile_cache, "distribution", lambda name: rebuilt)
    folders.append(open_cache(tmp_path, ""))
    assert [folders.index(folder) for folder in folders] == [0, 0, 2, 3]
    assert all(folder.is_dir() and folder.parent == tmp_path for folder in folders)


def test_cache_that_cannot_be_made_is_an_error(tmp_path):
    """A file stands in the way."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        open_cache(tmp_path / "file" / "programs", "")


def test_full_disk_is_an_error(tmp_path, monkeypatch):
    """Nothing is begun that could not be written."""
    monkeypatch.setattr(compile_cache.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1 << 20))
    with pytest.raises(OSError) as raised:
        open_cache(tmp_path, "")
    assert raised.value.errno == errno.ENOSPC


def test_what_was_not_used_for_longest_goes(tmp_path):
    """Of all stacks together; files of others stay."""
    old, new = tmp_path / "jaxlib-1", tmp_path / "jaxlib-2"
    old.mkdir()
    new.mkdir()
    gone = [keep(old, "a", 40, age=300), keep(new, "b", 40, age=200)]
    stay = [keep(old, "c", 40, age=100), keep(new, "d", 40, age=50), new / "notes.txt"]
    stay[-1].write_bytes(bytes(500))
    trim_cache(tmp_path, most=100)
    assert not any(path.exists() for path in gone) and all(path.exists() for path in stay)


def test_entry_that_another_run_removed_is_no_error(tmp_path, monkeypatch):
    """Between the look at the folder and the removal."""
    (tmp_path / "jaxlib-1").mkdir()
    entry = keep(tmp_path / "jaxlib-1", "a", 40, age=1)
    monkeypatch.setattr(compile_cache, "_entries", lambda root: [(0, 40, entry), (1, 40, entry)])
    trim_cache(tmp_path, most=0)
    assert not entry.exists()
