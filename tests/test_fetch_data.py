"""The data of scenarios/papers as openml.org has them, fetched into the folder DESIM_DATA."""

import numpy as np
import pandas as pd
from sections import made

from analysis import fetch_data


def test_openml_is_written_as_the_scenarios_read_it(tmp_path, monkeypatch, capsys):
    from sklearn import datasets

    cities = pd.Categorical(["Bern", None, "Thun"])
    frame = pd.DataFrame({"age": [30, 40, 50], "city": cities, "class": [">50K", ">50K", "<=50K"]})
    images = np.arange(5 * 784, dtype=float).reshape(5, 784) % 256
    bunch = type("Bunch", (), {"frame": frame, "data": images, "target": np.array(list("31410"))})
    monkeypatch.setattr(datasets, "fetch_openml", lambda **which: bunch())
    monkeypatch.setattr(fetch_data, "TRAINING", 3)
    monkeypatch.delenv("DESIM_DATA", raising=False)
    assert fetch_data.main() == 2
    assert "DESIM_DATA is not set" in capsys.readouterr().err
    monkeypatch.setenv("DESIM_DATA", str(tmp_path / "new"))
    assert fetch_data.main() == 0
    keys = {"agents": 1, "partition": "contiguous"}
    file = {"source": "csv", "file": str(tmp_path / "new" / "adult.csv.gz"), "label": "income"}
    adult = made(**file, **keys, encode="one-hot", missing="drop", positive=">50K")
    assert adult.names == ("age", "city=Bern", "city=Thun")
    assert len(adult.A) == 2
    mnist = made(source="mnist-npz", file=str(tmp_path / "new" / "mnist.npz"), positive=1, **keys)
    assert np.array_equal(mnist.A * 255, images[:3])
    assert mnist.b.tolist() == [-1, 1, -1]
    assert mnist.test_b.tolist() == [1, -1]
    assert fetch_data.main() == 0
    assert capsys.readouterr().out.count("is there already") == 2
