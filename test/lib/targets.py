"""What a build has to make for some of its tests, as meson tells it."""

import json
import os
import subprocess


def of_suite(folder, suite):
    """Names of files for ninja: what the tests of that suite depend on in a configured build directory, and what is
    installed, which tests find by its name."""
    done = subprocess.run(["meson", "introspect", folder, "--tests", "--targets"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, check=True)  # fmt: skip
    told = json.loads(done.stdout)
    needed = {target for test in told["tests"] if any(one.endswith(":" + suite) for one in test["suite"])
              for target in test["depends"]}  # fmt: skip
    return tuple(os.path.relpath(file, folder) for target in told["targets"] if target["installed"] or target["id"] in needed
                 for file in target["filename"])  # fmt: skip
