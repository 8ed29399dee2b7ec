"""The pure modules of the page: runs the tests of web/src/page/page.test.ts in node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).parents[3] / "web"
ESBUILD = WEB / "node_modules" / ".bin" / "esbuild"

pytestmark = pytest.mark.skipif(
    not ESBUILD.exists() or shutil.which("node") is None,
    reason="needs node and the tools of the page: run `npm ci` in web/",
)


def test_pure_modules_of_the_page(tmp_path: Path) -> None:
    bundle = tmp_path / "checks.cjs"
    command = [str(ESBUILD), "src/page/page.test.ts", "--bundle", "--platform=node", "--format=cjs"]
    command += ["--loader:.css=empty", "--log-level=error", f"--outfile={bundle}"]
    subprocess.run(command, cwd=WEB, check=True, timeout=60)
    results = f"require({json.dumps(str(bundle))}).results"
    run = f"{results}.then((found) => console.log(JSON.stringify(found)))"
    output = subprocess.run(["node", "-e", run], check=True, capture_output=True, text=True, timeout=60)
    results = json.loads(output.stdout)
    assert len(results) > 20
    assert [f"{name}: {error}" for name, error in results if error] == []
