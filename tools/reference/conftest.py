"""Where the goldens are that the twins' mutations are held to: a build's, which LONGHEADS_GOLDENS names, or
else new ones in a folder for this run."""

import os
import pathlib
import subprocess
import sys
import tempfile

FOLDERS = {"longheads": "longheads_goldens.py", "methods": "method_goldens.py", "esa-fit": "esa_fit_goldens.py"}


def pytest_configure(config):
    if "LONGHEADS_GOLDENS" in os.environ:
        return
    config.goldens = tempfile.TemporaryDirectory()
    for folder, script in FOLDERS.items():
        here = pathlib.Path(__file__).resolve().parent
        subprocess.run([sys.executable, here / script, f"{config.goldens.name}/{folder}"], check=True)
    os.environ["LONGHEADS_GOLDENS"] = config.goldens.name
