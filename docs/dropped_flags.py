"""Writes ``meshproof/targets/dropped_flags.toml``, of the wheels of jaxlib in a folder that it is given.

A name counts as a flag where it stands alone in the library, as the name of an option does; what else looks like one
does no harm, because only flags that somebody sets are looked up.
"""

import re
import sys
import zipfile
from pathlib import Path

from packaging.version import Version

NAME = re.compile(rb"(?<![\w.])(xla_[a-z0-9_]{4,90})(?=\0)")
TABLE = Path("meshproof/targets/dropped_flags.toml")
HEAD = """# Names of compiler flags that a release of jaxlib no longer has, by the last one looked at that had them.
# `python -m docs.dropped_flags DIR` wrote this of the wheels of {releases} for Linux on x86-64.

[dropped_after]
"""


def names(wheel: Path) -> set[str]:
    """Every name in a wheel's libraries that may be that of a flag."""
    with zipfile.ZipFile(wheel) as opened:
        libraries = [opened.read(name) for name in opened.namelist() if ".so" in name]
    return {name.decode() for library in libraries for name in NAME.findall(library)}


def main(folder: str) -> None:
    """Write the table."""
    wheels = {Version(wheel.name.split("-")[1]): names(wheel) for wheel in Path(folder).glob("jaxlib-*.whl")}
    order = sorted(wheels)
    newest, last = wheels[order[-1]], {}
    for release in order:
        last |= dict.fromkeys(wheels[release] - newest, str(release))
    text = HEAD.format(releases=", ".join(map(str, order)))
    for release in map(str, order[:-1]):
        own = sorted(name for name, seen in last.items() if seen == release)
        text += f'"{release}" = [\n' + "".join(f'    "{name}",\n' for name in own) + "]\n"
    TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
