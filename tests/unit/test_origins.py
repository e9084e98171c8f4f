"""A report says of a package that no index had where it is from."""

import json
from importlib.metadata import distributions

import pytest

from meshproof.observing.stack import version_of


def installed(folder, origin):
    """A distribution whose installer wrote this ``direct_url.json``, or none."""
    info = folder / "toy-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n", encoding="utf-8")
    if origin:
        info.joinpath("direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    [found] = distributions(path=[str(folder)])
    return found


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        (None, "1.0"),
        ({"url": "file:///home/me/toy-1.0-py3-none-any.whl", "archive_info": {}}, "1.0 of toy-1.0-py3-none-any.whl"),
        ({"url": "file:///home/me/toy/", "dir_info": {"editable": True}}, "1.0 of toy"),
        (
            {"url": "https://github.com/me/toy.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "1.0 of toy.git at c0ffee",
        ),
    ],
)
def test_origin(tmp_path, origin, told):
    """A release by its version alone; a wheel, a folder, a commit by name, never by its place on this machine."""
    assert version_of(installed(tmp_path, origin)) == told
