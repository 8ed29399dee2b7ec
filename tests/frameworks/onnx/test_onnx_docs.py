"""The blocks of docs/files.md for ONNX run."""

import warnings

from docs_help import ROOT, run_blocks


def test_blocks_of_files_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's exporter
        run_blocks(ROOT / "docs" / "files.md", 0, "onnx")
    assert "rewritten='FuseBatchNormIntoConv'" in capsys.readouterr().out
