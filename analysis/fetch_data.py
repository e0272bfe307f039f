"""Fetch Adult and MNIST from openml.org into the folder that DESIM_DATA names.

`python -m analysis.fetch_data` writes adult.csv.gz and mnist.npz, as scenarios/papers reads them.
"""

import os
import sys
from pathlib import Path

import numpy as np

TRAINING = 60_000  # MNIST's first images


def main() -> int:
    """Write the files that are not there yet; 2 where no folder is named."""
    named = os.environ.get("DESIM_DATA")
    if not named:
        print("DESIM_DATA is not set; set it to the folder for the data", file=sys.stderr)
        return 2
    folder = Path(named).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in (("adult.csv.gz", adult), ("mnist.npz", mnist)):
        if (folder / name).exists():
            print(f"{folder / name} is there already")
            continue
        write(folder / name)
        print(f"{folder / name} written")
    return 0


def adult(file: Path) -> None:
    """UCI Adult (Becker, Kohavi 1996): openml.org data set adult, version 2."""
    from sklearn.datasets import fetch_openml

    frame = fetch_openml(name="adult", version=2, as_frame=True, parser="auto").frame
    frame = frame.rename(columns={"class": "income"})
    frame.to_csv(file, index=False, na_rep="?")


def mnist(file: Path) -> None:
    """MNIST (LeCun, Cortes, Burges): openml.org data set mnist_784, version 1."""
    from sklearn.datasets import fetch_openml

    found = fetch_openml(name="mnist_784", version=1, as_frame=False, parser="auto")
    x = found.data.astype(np.uint8).reshape(-1, 28, 28)
    y = found.target.astype(np.uint8)
    np.savez_compressed(
        file,
        x_train=x[:TRAINING], y_train=y[:TRAINING], x_test=x[TRAINING:], y_test=y[TRAINING:],
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
