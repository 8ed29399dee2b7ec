"""The blocks of docs/frameworks.md for TensorFlow run against a real server."""

from __future__ import annotations

from docs_help import ROOT, run_blocks

from intus.serving.run import Server


def test_blocks_of_frameworks_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Server(database=tmp_path / "docs.db", port=0) as server:
        run_blocks(ROOT / "docs" / "frameworks.md", server.port, "tensorflow")
