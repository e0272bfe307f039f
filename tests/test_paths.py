"""Files named in scenarios: relative to the scenario, or in a folder that a variable names."""

import pytest
from mutant import mutant
from pydantic import TypeAdapter, ValidationError

from desim.fields import File, Folder, numbers


def read(kind, written, folder):
    return TypeAdapter(kind).validate_python(written, context={"folder": folder})


def test_a_variable_names_a_folder(tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text("a\n")
    monkeypatch.setenv("DESIM_DATA", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert read(File, "${DESIM_DATA}/x.csv", elsewhere) == tmp_path / "x.csv"
    assert read(Folder, "${DESIM_DATA}/elsewhere", tmp_path) == elsewhere
    assert read(File, "../x.csv", elsewhere) == tmp_path / "x.csv"
    (elsewhere / "$x").write_text("")
    assert read(File, "$x", elsewhere) == elsewhere / "$x"


def check_refusals(fields, folder, monkeypatch):
    def refused(written, kind=fields.File):
        with pytest.raises(ValidationError) as caught:
            read(kind, written, folder)
        return caught.value.errors()[0]["msg"]

    monkeypatch.delenv("DESIM_DATA", raising=False)
    unset = refused("${DESIM_DATA}/x.csv")
    assert "the environment variable DESIM_DATA is not set; set it to a folder" in unset
    assert "README.md" not in unset
    (folder / "README.md").write_text("# Where to get data\n")
    assert f"{folder / 'README.md'} says how to get it" in refused("${DESIM_DATA}/x.csv")
    monkeypatch.setenv("DESIM_DATA", str(folder))
    missing = refused("${DESIM_DATA}/x.csv")
    assert "'${DESIM_DATA}/x.csv', which does not exist" in missing
    assert "README.md says how to get it" in missing
    assert "README.md says" not in refused("x.csv")
    assert "which is a directory" in refused("${DESIM_DATA}")
    assert "which is a file" in refused("README.md", fields.Folder)
    assert "allowed: text" in refused(3)


def test_what_is_missing_is_explained(tmp_path, monkeypatch):
    check_refusals(numbers, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if not os.environ.get(name)", "if os.environ.get(name)"),
        ("and guide.is_file()", "and not guide.is_file()"),
        ('path.is_file() if what == "file" else path.is_dir()', "path.exists()"),
    ],
)
def test_wrong_explanations_are_noticed(tmp_path, monkeypatch, right, wrong):
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_refusals(mutant(numbers, right, wrong), tmp_path, monkeypatch)
