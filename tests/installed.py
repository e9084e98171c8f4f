"""``python -m tests.installed [CONSTRAINTS]``: what a new user does, with the wheel of this checkout and nothing else.

Needs Python alone: builds the wheel, installs it in a fresh environment in another folder, and from an empty one judges
the stack, then a trainer, then the trainer with a fault. Ends with an error where one of them does not end as it must.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRAINER = (ROOT / "docs" / "adapters" / "optax_loop.py").read_text(encoding="utf-8")
PLACED = 'jax.device_put(batch, NamedSharding(self.mesh, PartitionSpec("data")))'
BROKEN = TRAINER.replace(PLACED, PLACED.replace('"data"', ""))
"""The batch is replicated: every device computes everything, and the losses are right."""


def run(*command, code=0, **options):
    """Run a command to its end, show it with its seconds, and demand its exit code."""
    print(f"$ {shlex.join(map(str, command))}", flush=True)
    start = time.monotonic()
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    print(f"({time.monotonic() - start:.0f} s)", flush=True)
    if done.returncode != code:
        sys.exit(f"exit code {done.returncode}, expected {code}:\n{done.stdout}{done.stderr}")
    return done.stdout


def must(what, holds, seen):
    """End with an error where something does not hold."""
    if not holds:
        sys.exit(f"expected {what}, saw:\n{seen}")


def main(constraints):
    """Each step of a new user, timed."""
    with tempfile.TemporaryDirectory(prefix="meshproof-installed-") as name:
        folder = Path(name)
        environment, empty = folder / "environment", folder / "empty"
        os.environ["MESHPROOF_CACHE"] = str(folder / "cache")  # no program was compiled before
        empty.mkdir()
        venv.create(environment, with_pip=True)
        python, meshproof = environment / "bin" / "python", environment / "bin" / "meshproof"
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        run(*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
        [wheel] = folder.glob("*.whl")
        start = time.monotonic()
        run(*pip, "install", wheel, *(word for path in constraints for word in ("--constraint", Path(path).absolute())))
        said = run(
            *(meshproof, "check", "-k", "data_parallel", "-n", "2", "--conformance-report", "report.json"), cwd=empty
        )
        print(f"from `pip install` to the verdict: {time.monotonic() - start:.0f} s", flush=True)
        suites = environment.resolve() / "lib"
        must(f"suites in {suites}", f"suites: {suites}" in said, said)
        report = json.loads((empty / "report.json").read_text(encoding="utf-8"))
        statuses = [clause["status"] for clause in report["clauses"]]
        must("20 proved clauses and no failed one", statuses.count("proved") >= 20 and "failed" not in statuses, said)

        trainer = empty / "my_trainer" / "meshproof.py"
        trainer.parent.mkdir()
        trainer.write_text(TRAINER, encoding="utf-8")
        judge = [meshproof, "check", "--impl", "my_trainer.meshproof"]
        said = run(*judge, "-n", "2", cwd=empty)
        proved = re.search(r"^clauses: 0 failed, .* (\d+) proved", said, re.MULTILINE)
        must("24 proved clauses or more, and no failed one", proved and int(proved[1]) >= 24, said)
        trainer.write_text(BROKEN, encoding="utf-8")
        said = run(*judge, cwd=empty, code=1)
        alone = next((line for line in said.splitlines() if line.strip().startswith("run it alone: ")), "")
        must("a failure that says how to run it alone", "run it alone: meshproof check 'suites/test_" in alone, said)
        words = shlex.split(alone.partition("run it alone: ")[2])
        said = run(meshproof, *words[1:], cwd=empty, code=1)
        must("the same failure, alone", alone.strip() in said and "1 failed" in said, said)


if __name__ == "__main__":
    main(sys.argv[1:])
