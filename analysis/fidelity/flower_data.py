"""Data of Flower's examples where Hugging Face is not reached: folders of the names that they load.

`datasets.load_dataset("ylecun/mnist")` reads a folder `ylecun/mnist` of the working directory where
there is one, so that an example finds these without a change. Iris is the set itself, as
scikit-learn has it. The others have the columns and types of theirs and other content: digits of
scikit-learn (8 x 8) made larger in place of MNIST, Fashion-MNIST and CIFAR-10, and rows that are
drawn in place of the Adult, Titanic and HIGGS sets. They say nothing of how well an example learns.
"""

from pathlib import Path
from typing import Any

import numpy as np

PICTURES = {
    "ylecun/mnist": (28, "L", "image"),
    "zalando-datasets/fashion_mnist": (28, "L", "image"),
    "uoft-cs/cifar10": (32, "RGB", "img"),
}  # pixels of a side, colours, and the column
TRAINED = 1500  # pictures to train on; the other 297 test


def written(folder: Path) -> None:
    """Write all of them to a folder."""
    for name, (size, colours, column) in PICTURES.items():
        for split, own in _pictures(size, colours, column).items():
            _write(own, folder / name, split)
    for name, table in _tables().items():
        from datasets import Dataset

        _write(Dataset.from_dict(table), folder / name, "train")


def _write(own: Any, folder: Path, split: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    own.to_parquet(str(folder / f"{split}.parquet"))


def _pictures(size: int, colours: str, column: str) -> dict[str, Any]:
    """Digits as pictures, in both splits."""
    from datasets import ClassLabel, Dataset, Features, Image
    from PIL import Image as Picture
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    kinds = Features({column: Image(), "label": ClassLabel(num_classes=10)})
    found = {}
    for split, own in (("train", order[:TRAINED]), ("test", order[TRAINED:])):
        grey = (pixels[own].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
        pictures = [Picture.fromarray(one).resize((size, size)).convert(colours) for one in grey]
        table = {column: pictures, "label": labels[own].tolist()}
        found[split] = Dataset.from_dict(table, features=kinds)
    return found


def _tables() -> dict[str, dict[str, Any]]:
    """Tables by name, a column after the other."""
    from sklearn.datasets import load_iris

    iris = load_iris()
    names = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
    small: dict[str, Any] = dict(zip(names, iris.data.T.tolist(), strict=True))
    heads = ("SepalLengthCm", "SepalWidthCm", "PetalLengthCm", "PetalWidthCm")
    large: dict[str, Any] = dict(zip(heads, iris.data.T.tolist(), strict=True))
    species = [f"Iris-{iris.target_names[k]}" for k in iris.target]
    return {
        "hitorilabs/iris": {**small, "species": iris.target.tolist()},
        "scikit-learn/iris": {"Id": [*range(1, 151)], **large, "Species": species},
        "scikit-learn/adult-census-income": _adults(1500),
        "julien-c/titanic-survival": _passengers(887),
        "jxie/higgs": _collisions(2000),
    }


def _adults(rows: int) -> dict[str, Any]:
    """Columns of the Adult set: six numbers, eight words, and an income that follows from two."""
    rng = np.random.default_rng(1)
    words = {
        "workclass": ("Private", "State-gov", "?"), "education": ("HS-grad", "Masters", "11th"),
        "marital.status": ("Divorced", "Married"), "occupation": ("Sales", "Farming", "Tech"),
        "relationship": ("Wife", "Own-child"), "race": ("A", "B"), "sex": ("Female", "Male"),
        "native.country": ("Cuba", "France"),
    }  # fmt: skip
    numbers = {
        "age": (17, 90), "fnlwgt": (1e4, 1e6), "education.num": (1, 16), "capital.gain": (0, 1e4),
        "capital.loss": (0, 4e3), "hours.per.week": (1, 99),
    }  # fmt: skip
    found: dict[str, Any] = {
        name: rng.integers(int(low), int(high), rows).tolist()
        for name, (low, high) in numbers.items()
    }
    found |= {name: rng.choice(some, rows).tolist() for name, some in words.items()}
    rich = np.array(found["age"]) + 3 * np.array(found["education.num"]) > 80
    return {**found, "income": np.where(rich, ">50K", "<=50K").tolist()}


def _passengers(rows: int) -> dict[str, Any]:
    """Columns of the Titanic set, and a survival that follows from sex and class."""
    rng = np.random.default_rng(2)
    sex, place = rng.choice(["male", "female"], rows), rng.integers(1, 4, rows)
    title = np.where(sex == "male", "Mr", "Mrs")
    lives = rng.random(rows) < np.where(sex == "female", 0.9, 0.4) / place
    return {
        "Survived": lives.astype(int).tolist(), "Pclass": place.tolist(),
        "Name": [f"{one}. Passenger {i}" for i, one in enumerate(title)], "Sex": sex.tolist(),
        "Age": rng.uniform(1, 80, rows).round().tolist(),
        "Siblings/Spouses Aboard": rng.integers(0, 4, rows).tolist(),
        "Parents/Children Aboard": rng.integers(0, 4, rows).tolist(),
        "Fare": rng.exponential(30.0, rows).tolist(),
    }  # fmt: skip


def _collisions(rows: int) -> dict[str, Any]:
    """Rows of 28 numbers and a label, as HIGGS has them."""
    rng = np.random.default_rng(3)
    inputs = rng.standard_normal((rows, 28))
    label = (inputs[:, 0] * inputs[:, 1] + inputs[:, 2] > 0).astype(float)
    return {"label": label.tolist(), "inputs": inputs.tolist()}
