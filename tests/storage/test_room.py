"""A disk without room: the sentence of a start says so, and does not blame the disk or other programs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from intus.core.errors import InputError
from intus.storage.database import Database
from intus.storage.same_file import want_of_room


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder) -> None:
    """Take all room that is left."""
    with (folder / "other").open("ab", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue


def test_start_on_a_full_disk_says_that_it_is_full(small_disk):
    """It said that the disk may fail, or that another program uses the files."""
    Database(small_disk / "x.db").close()
    fill(small_disk)
    with pytest.raises(InputError) as refused:
        Database(small_disk / "x.db")
    assert "Its disk has no room: No space left on device. Make room and try again." in str(refused.value)
    assert "may fail" not in str(refused.value)
    (small_disk / "other").unlink()
    Database(small_disk / "x.db").close()


def test_disk_with_room_is_not_called_full(tmp_path):
    assert want_of_room(tmp_path) == want_of_room(tmp_path / "nowhere") == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="a limit of POSIX")
def test_limit_on_the_size_of_files_is_named(tmp_path):
    code = (
        "import resource, sys, pathlib\n"
        "from intus.storage.same_file import want_of_room\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "print(want_of_room(pathlib.Path(sys.argv[1])))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert ran.stdout == "File too large\n", ran.stderr
