"""Problem sections as a scenario would hold them, read into shards."""

import numpy as np

from desim.problem.data import read
from desim.problem.losses.scalar import Loss
from desim.scenario.sections.problem import Problem

TABLE = "age,group,height,city,sick\n30,2,1.5,Bern,no\n40,1,1.75,Thun,yes\n50,2,1.25,Bern,yes\n"


def made(loss="logistic", seed=0, **keys):
    """The shards of a problem section written as `keys`, those of its data among them."""
    above = {key: keys.pop(key) for key in ("agents", "partition", "sizes") if key in keys}
    section = Problem.model_validate({"data": keys, "loss": loss, **above})
    return read(
        section.data,
        agents=section.agents,
        partition=section.partition,
        sizes=section.sizes,
        seed=seed,
        loss=Loss(section.loss.kind),
    )


def written(folder, text, name="table.csv"):
    (folder / name).write_text(text)
    return {"source": "csv", "file": str(folder / name), "label": "sick", "agents": 1}


def shares(shards):
    return np.split(np.arange(len(shards.b)), shards.start[1:-1])
