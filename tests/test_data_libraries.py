"""Data sets of plug-ins, of torchvision and of Hugging Face's library."""

import sys
import types

import numpy as np
from PIL import Image
from shaped_rows import problem_of, refused


def test_a_plug_ins_data_set():
    data = {"source": "plugin", "name": "spoken", "arguments": {"rows": 20}}
    problem = problem_of(data, partition={"by": "speaker"})
    assert problem.sites == ("a", "b")
    assert problem.A.shape == (16, 2, 3)
    assert problem.test_b.tolist() == [4 % 3, 9 % 3, 14 % 3, 19 % 3]
    refused(r"name: found 'spoke'; allowed: spoken; did you mean", data | {"name": "spoke"})
    refused(r"spoken raised TypeError.*'lines'", data | {"arguments": {"lines": 1}}, agents=2)

    def wrong(how):
        return data | {"arguments": {"rows": 20, "wrong": how}}

    refused(r"inputs \(20, 2, 3\) and labels \(19,\); allowed", wrong("labels"), agents=2)
    refused(r"inputs\[1, 0, 2\]: found nan; allowed: finite", wrong("nan"), agents=2)
    refused(r"column 'speaker' of shape \(19,\); allowed: \(20,\)", wrong("column"), agents=2)
    refused(r"read returned a ndarray; allowed: desim\.model\.Examples", wrong("rows"), agents=2)
    refused(r"found a rule for test rows, but these data bring", data | {"test": 0.1}, agents=2)
    assert len(problem_of(data | {"test": {"rows": 2}}, agents=2).test_A) == 2


class Digits:
    """As torchvision's data sets are: items (image, label)."""

    def __init__(self, root, train=True):
        self.root, self.rows = root, 12 if train else 5

    def __len__(self):
        return self.rows

    def __getitem__(self, place):
        return Image.fromarray(np.full((4, 3), place, np.uint8)), place % 2


def test_a_data_set_of_torchvision(monkeypatch, tmp_path):
    data = {"source": "torch", "of": "torchvision.datasets.Digits"}
    data |= {"arguments": {"root": {"path": "here"}}, "test_arguments": {"train": False}}
    refused(r"found no torchvision here; allowed: pip install torchvision", data, agents=2)
    package, module = types.ModuleType("torchvision"), types.ModuleType("torchvision.datasets")
    module.Digits = Digits
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", module)
    problem = problem_of(data | {"scale": "pixel"}, agents=2, partition="contiguous")
    assert problem.A.shape == (12, 1, 4, 3)
    assert problem.A[7][0, 0, 0] == np.float32(7 / 255)
    assert len(problem.test_A) == 5
    refused(
        r"of: found 'os\.system'; allowed: torchvision\.datasets\.NAME", data | {"of": "os.system"}
    )
    download = data | {"arguments": {"root": "x", "download": True}}
    refused(r"found download; allowed: data that are on this machine", download)
    refused(
        r"found no 'Digit' in torchvision\.datasets",
        data | {"of": "torchvision.datasets.Digit"},
        agents=2,
    )


class Kept(list):
    """As Hugging Face's data sets are: items by the names of columns."""

    column_names = ("image", "label", "speaker")

    def __getitem__(self, name):
        return [row[name] for row in self]


def test_a_data_set_of_hugging_face(monkeypatch, tmp_path):
    data = {"source": "huggingface", "folder": str(tmp_path), "inputs": "image"}
    data |= {"labels": "label", "columns": ["speaker"], "split": "train", "test_split": "test"}
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "datasets", None)
        refused(r"found no datasets here; allowed: pip install datasets", data, agents=2)
    rows = [
        {"image": np.full((2, 2), k / 10), "label": k % 2, "speaker": "ab"[k % 2]}
        for k in range(10)
    ]
    library = types.ModuleType("datasets")
    library.load_from_disk = lambda folder: {"train": Kept(rows[:7]), "test": Kept(rows[7:])}
    monkeypatch.setitem(sys.modules, "datasets", library)
    problem = problem_of(data, partition={"by": "speaker"})
    assert problem.sites == ("a", "b")
    assert problem.rows.tolist() == [4, 3]
    assert problem.test_A[0][0, 0] == np.float32(0.7)
    refused(
        r"labels: found 'lable'; allowed: image, label, speaker",
        data | {"labels": "lable"},
        agents=2,
    )
    refused(r"split: found 'all'; allowed: train, test", data | {"split": "all"}, agents=2)
