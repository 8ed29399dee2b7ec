"""The container file: its entry point, run without a container."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "Containerfile"


@pytest.fixture
def entry(tmp_path):
    """Return the image's entry point, and an environment with an ``intus`` command on the PATH."""
    (line,) = re.findall(r"^ENTRYPOINT (.*)$", FILE.read_text(), re.MULTILINE)
    tool = tmp_path / "bin" / "intus"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m intus "$@"\n')
    tool.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "INTUS_TOKEN"}
    return json.loads(line), environment | {"PATH": f"{tool.parent}:{os.environ['PATH']}"}


@pytest.mark.long
def test_container_serves_with_token_and_stores_in_volume(entry, tmp_path):
    command, environment = entry
    process = subprocess.Popen(
        [*command, "--port", "0"],
        env=environment | {"INTUS_TOKEN": "a b'c"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port = re.search(r"http://0\.0\.0\.0:(\d+)/", process.stdout.readline())[1]
        url = f"http://127.0.0.1:{port}/api/runs"
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(url)
        refused.value.close()
        known = urllib.request.Request(url, headers={"Authorization": "Bearer a b'c"})
        with urllib.request.urlopen(known, timeout=10) as answer:
            assert json.load(answer) == {"runs": [], "scores": [], "kinds": {}, "change": 0}
        assert (tmp_path / "intus.db").exists()
    finally:
        process.terminate()
        assert process.wait(30) in (0, -15)
        process.stdout.close()


def test_container_requires_token(entry):
    command, environment = entry
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "set it to the secret that requests must carry" in done.stderr


def test_container_installs_existing_extras():
    text = FILE.read_text()
    extras = re.search(r'"/source\[(.*?)\]"', text)[1].split(",")
    project = (FILE.parent / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = ", project, re.MULTILINE) for extra in extras)
    for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE):
        assert all((FILE.parent / name).exists() for name in line.split())
