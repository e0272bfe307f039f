"""Files of users that are torn, forged or of another kind: a refusal in words, and nothing else."""

import bz2
import gzip
import io
import lzma
import os
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cases import graph, star
from mutant import mutant

import desim
from desim import readers
from desim.errors import InputError
from desim.problem.data import table
from desim.scenario.load import read

RATES = "time,a,b\n0,1,2\n1,3,1\n2,1,5\n"
ROWS = "x,y,z\n" + "".join(f"{i},{i % 2},{i * 0.5}\n" for i in range(12))


def problem(**data):
    made = star()
    made["problem"] = {"agents": 3, "data": {"label": "y", **data}, "loss": "logistic"}
    return made


def arrays(file):
    made = star()
    made["problem"] = {"data": {"source": "npz", "file": file}, "loss": "squared"}
    return made


PLACES = {  # key: a right csv, right arrays, the scenario that reads either
    "problem.data": (ROWS, {}, lambda file: problem(source="csv", file=file)),
    "problem.data.file": ("", {"A": np.ones((6, 4, 2)), "b": np.ones((6, 4))}, arrays),
    "network.link.bandwidth": (
        RATES,
        {"a": np.array([[0.0, 1.0], [1.0, 2.0]])},
        lambda file: {
            **star(),
            "network": {"link": {"bandwidth": {"trace": file, "unit": "Mbit/s"}}},
        },
    ),
    "compute.speed": (
        "a,b\n10,20\n30,40\n",
        {"a": np.ones((2, 3))},
        lambda file: {**star(), "compute": {"speed": {"trace": file, "unit": "ms"}}},
    ),
    "network.latency_matrix": (
        "0,5,6\n5,0,4\n6,4,0\n",
        {"rtt": np.ones((9, 9))},
        lambda file: {**star(), "network": {"latency_matrix": {"file": file, "unit": "ms"}}},
    ),
    "churn.trace": (
        "time,a,b\n0,1,1\n5,0,1\n9,1,1\n",
        {"a": np.array([[0.0, 1.0], [2.0, 0.0]])},
        lambda file: {**star(), "churn": {"trace": file}},
    ),
    "participation.trace": (
        "round,agent\n1,0\n2,1\n",
        {"a": np.ones((2, 6))},
        lambda file: {**star(), "participation": {"trace": file}},
    ),
    "network.topology.contacts": (
        "agent,peer,begin,end\n0,1,0,5\n1,2,1,6\n",
        {name: np.array([0.0, 1.0]) for name in ("agent", "peer", "begin", "end")},
        lambda file: {**graph(), "network": {"topology": {"contacts": file}}},
    ),
    "algorithm.init.npz": (
        "",
        {"x0": np.ones((6, 4))},
        lambda file: star(algorithm={"init": {"npz": file}}),
    ),
}


def packed(text):
    """Archives of a text, cut off or none, by the ends of their names."""
    raw, box = text.encode() * 20, io.BytesIO()
    with zipfile.ZipFile(box, "w") as archive:
        archive.writestr("a.csv", raw)
    whole = {
        "gz": gzip.compress(raw), "xz": lzma.compress(raw), "bz2": bz2.compress(raw),
        "zip": box.getvalue(),
    }  # fmt: skip
    cut = {f"cut.csv.{end}": content[:-12] for end, content in whole.items()}
    return cut | {f"plain.csv.{end}": raw for end in (*whole, "zst")}


def written_wrong(text):
    """Texts with one number that is none, by name."""
    head, row, *rest = text.splitlines()
    cells = row.split(",")[:-1]
    wrong = {"digits": "9" * 400, "minus": "-" + "9" * 400, "thousands": "9" * 5000, "nul": "\0"}
    found = {
        f"{name}.csv": "\n".join([head, ",".join([*cells, value]), *rest]).encode()
        for name, value in {**wrong, "huge": "-1e308", "word": "fast"}.items()
    }
    torn = {"bytes.csv": text.encode() + b"\xff\xfe", "empty.csv": b"", "noise.csv": os.urandom(99)}
    return found | torn


def header(shape, fortran=False):
    """A member of an npz that claims that shape."""
    text = f"{{'descr': '<f8', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    text += " " * (64 - (11 + len(text)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def forged(right):
    """Npz files whose first array is none, by name."""
    name, array = next(iter(right.items()))
    members = {
        "vast": header("(100000000000000000000,)"), "wide": header("(10000000000, 10000000000)"),
        "torn": header("(4, 4)"), "negative": header("(-3, 2)"), "text": b"hello",
        "odd": b"\x93NUMPY\x01\x00\x10\x00{'descr': import}",
        "objects": np.full(array.shape, None, object), "point": np.array(5.0),
        "complex": array.astype(complex), "words": array.astype(str),
        "huge": np.full(array.shape, -1e308),
    }  # fmt: skip
    found = {}
    for kind, content in members.items():
        box = io.BytesIO()
        with zipfile.ZipFile(box, "w") as archive:
            for other, value in {**right, name: content}.items():
                file = io.BytesIO(value) if isinstance(value, bytes) else saved(value)
                archive.writestr(f"{other}.npy", file.getvalue())
        found[f"{kind}.npz"] = box.getvalue()
    return found | {"one.npz": saved(array).getvalue(), "empty.npz": b"", "csv.npz": b"a,b\n1,2\n"}


def saved(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file


CASES = [
    (key, name, content)
    for key, (text, right, _) in PLACES.items()
    for name, content in {
        **(packed(text) | written_wrong(text) if text else {}),
        **(forged(right) if right else {}),
    }.items()
]


@pytest.mark.thin(3)
@pytest.mark.parametrize(("key", "name", "content"), CASES, ids=[f"{k} {n}" for k, n, _ in CASES])
def test_a_spoiled_file_is_refused_in_words(key, name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as refused:
        desim.run(PLACES[key][2](str(tmp_path / name)), out=tmp_path / "run")
    told = str(refused.value)
    assert key in told
    assert "unknown key" not in told
    assert len(told) < 600
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


@pytest.mark.parametrize("key", PLACES)
def test_right_files_are_read(key, tmp_path):
    text, right, made = PLACES[key]
    if key == "network.latency_matrix":
        text = "\n".join(",".join("1" * 7) for _ in range(7))
    if text:
        (tmp_path / "a.csv").write_text(text)
        (tmp_path / "a.csv.xz").write_bytes(lzma.compress(text.encode()))
        for name in ("a.csv", "a.csv.xz"):
            assert desim.load(made(str(tmp_path / name))).name
            readers.csv_frame(tmp_path / name, key)
    if right:
        fortran = {name: np.asfortranarray(array) for name, array in right.items()}
        np.savez(tmp_path / "a.npz", **right)
        np.savez(tmp_path / "f.npz", **fortran)
        same = [readers.npz_arrays(tmp_path / name, key) for name in ("a.npz", "f.npz")]
        assert all(np.array_equal(same[0][name], same[1][name]) for name in right)
        assert all(array.flags.c_contiguous for array in same[1].values())


def test_rows_longer_than_the_header_do_not_begin_with_labels(tmp_path):
    """The first value would be none of the table's, and each of the others another column's."""
    path = tmp_path / "a.csv"
    path.write_text("time,a\n0,1,5\n1,2,6\n")
    with pytest.raises(InputError, match=r"x: a\.csv, line 2: found 3 values; allowed: 2"):
        readers.arrays(path, "x")
    path.write_text("time,a\n0,1,\n1,2,\n")
    assert readers.arrays(path, "x")["a"].tolist() == [1.0, 2.0]


def test_a_narrower_door_is_noticed(tmp_path):
    """Each of these errors has no parent in common with the others but Exception."""
    (tmp_path / "a.csv.xz").write_bytes(b"none of these")
    twin = mutant(readers, "except Exception as error", "except (OSError, ValueError) as error")
    with pytest.raises(lzma.LZMAError):
        twin.csv_frame(tmp_path / "a.csv.xz", "here")
    with pytest.raises(InputError, match=r"here: a\.csv\.xz cannot be read as csv \(LZMAError"):
        readers.csv_frame(tmp_path / "a.csv.xz", "here")


def test_whole_numbers_that_no_float_holds_are_found_where_they_stand(tmp_path):
    (tmp_path / "a.csv").write_text(f"a,b\n1,2\n3,{'9' * 400}\n")
    with pytest.raises(InputError, match=r"beyond 1\.8e308 in row 2 of column b"):
        readers.csv_frame(tmp_path / "a.csv", "here")
    twin = mutant(readers, "abs(value) > sys.float_info.max", "False")
    assert len(twin.csv_frame(tmp_path / "a.csv", "here")) == 2


def test_numbers_whose_products_are_infinite_are_refused(tmp_path):
    rows = np.full((6, 4, 2), 1.0)
    rows[1, 2, 0] = -1e308
    np.savez(tmp_path / "a.npz", A=rows, b=np.ones((6, 4)))
    with pytest.raises(InputError, match=r"A of a\.npz: found a number of size 1e\+308; allowed"):
        desim.run(arrays(str(tmp_path / "a.npz")))
    twin = mutant(table, "-float(part.min(initial=0.0))", "0.0")
    twin.bounded(rows, "here")
    with pytest.raises(InputError):
        table.bounded(rows, "here")


@pytest.mark.parametrize("column", [[[1, 2]] * 12, [{"a": 1}] * 12, [b"ab"] * 12])
def test_a_column_of_lists_is_words(column, tmp_path):
    frame = pd.DataFrame({"y": [0, 1] * 6, "x": column, "z": range(12)})
    frame.to_parquet(tmp_path / "a.parquet")
    made = problem(source="parquet", file=str(tmp_path / "a.parquet"))
    assert desim.run(made, overrides={"stop.rounds": 1}).status == "done"
    with pytest.raises(InputError, match=r"row 1, column 'x': found .*allowed: a finite number"):
        desim.run(made, overrides={"problem.data.features": ["x"]})


def test_pipes_are_read_and_devices_are_not(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="found nothing in it"):
        desim.load(tmp_path / "pipe")  # nobody writes to it
    inner, outer = os.pipe()
    os.write(outer, b"name: a\n")
    os.close(outer)
    assert read(Path(f"/dev/fd/{inner}")).data == {"name": "a"}
    os.close(inner)
    with pytest.raises(InputError, match=r"/dev/zero: cannot be read \(it is a device\)"):
        desim.load("/dev/zero")
    with pytest.raises(InputError, match=r"found .*allowed: a file"):
        desim.run(PLACES["churn.trace"][2](str(tmp_path / "pipe")))
    with pytest.raises(InputError, match="is no regular file"):
        readers.csv_frame(tmp_path / "pipe", "here")
