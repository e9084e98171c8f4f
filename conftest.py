"""What every run in this checkout has; `meshproof/check.ini` names the same for the suites of a wheel."""

pytest_plugins = ["meshproof.pytest_plugin", "meshproof.timing.plugin", "meshproof.run.devices"]
