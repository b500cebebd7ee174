"""The notebooks of examples/notebooks, cell by cell. Each ends with what must hold."""

import json
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("pandas")

FOLDER = Path(__file__).parents[3] / "examples" / "notebooks"


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ipynb")))
def test_a_notebook_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code and code[-1].startswith("assert")
    names = {"__name__": "__main__"}
    for at, text in enumerate(code):
        exec(compile(text, f"{name}, code cell {at + 1}", "exec"), names)
