"""Files that a scenario reads, and the scenarios: what works, before something in it is spoiled."""

import gzip
import io
from typing import Any

import numpy as np
import pandas as pd
from ruamel.yaml import YAML

BASE: dict[str, Any] = {
    "name": "spoiled",
    "seed": 3,
    "problem": {
        "agents": 3,
        "data": {"source": "synthetic", "kind": "regression", "rows": 6, "dim": 2},
        "loss": "squared",
        "regularizer": {"l2": 0.1},
    },
    "algorithm": {"name": "fedavg", "local": {"epochs": 2, "step": 0.01}},
    "network": {"link": {"latency": "5 ms", "bandwidth": "1 Mbit/s"}},
    "compute": {"speed": "1000 /s"},
    "observe": {"metrics": ["loss"]},
    "stop": {"rounds": 3, "time": "1000 s"},
}
GRAPH = {"algorithm": {"name": "dsgd", "alpha": 0.1}, "observe": {"metrics": ["consensus"]}}
PLUGIN = b'''"""A method."""
import numpy as np

from desim.methods.shared.declarations import Method
from desim.fields import Init, Positive, Strict
from desim.problem.kernels.gradients import gradient


class Parameters(Strict):
    """step and start."""

    step: Positive = 0.1
    init: Init = Init.of("zeros")


class Own(Method):
    """One local step, averaged."""

    name = "own"
    kind = "coordinator"
    summary = "one local step"
    paper = "none"
    Parameters = Parameters

    def coordinator(self, hub):
        x0 = self.settings.initial("x0")
        own = hub.memory(x=x0.mean(axis=0))
        hub.start(x=x0)
        hub.publish(own.x)
        while hub.open:
            hub.call(hub.invite(), self.train, own.x, work=self.problem.rows)
            replies = yield hub.collect()
            own.x = replies.payload.mean(axis=0)
            hub.publish(own.x)

    def train(self, us, x):
        g = gradient(us.who, x, self.problem.data)
        us.x = x - self.parameters.step * g
        return us.x
'''


def as_yaml(data: Any) -> bytes:
    """Data as the text of a YAML file."""
    stream = io.BytesIO()
    YAML(typ="safe", pure=True).dump(data, stream)
    return stream.getvalue()


def _npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def _parquet(table: pd.DataFrame) -> bytes:
    stream = io.BytesIO()
    table.to_parquet(stream)
    return stream.getvalue()


def changed(**changes: Any) -> dict[str, Any]:
    """The scenario that everything starts from, with other sections."""
    return {**BASE, **changes}


def _table(source: str, file: str) -> dict[str, Any]:
    data = {"source": source, "file": file, "label": "y", "encode": "one-hot", "test": "25 %"}
    return changed(problem={**BASE["problem"], "data": {**data, "missing": "most-frequent"}})


def subjects() -> dict[str, tuple[dict[str, bytes], dict[str, Any]]]:
    """Files and the scenario that reads them, by name: what works before it is spoiled."""
    draw = np.random.default_rng(0)
    table = pd.DataFrame(draw.normal(size=(24, 2)).round(3), columns=["a", "b"])
    table["c"] = ["x", "y", "z"] * 8
    table["y"] = table["a"] - table["b"]
    csv = table.to_csv(index=False).encode()
    arrays = {"A": draw.normal(size=(3, 6, 2)), "b": draw.normal(size=(3, 6))}
    rates = b"time,one,two\n0,1.5,20\n10,.4,18\n20,0,22\n25,2.1,19\n"
    link = BASE["network"]["link"]
    matrix = np.full((4, 4), 20.0) - 20.0 * np.eye(4)

    def up(file: str) -> dict[str, Any]:
        law = {"trace": file, "unit": "Mbit/s", "assign": "in-order", "end": "loop"}
        return changed(network={"link": link, "uplink": {"bandwidth": law}})

    def speed(file: str) -> dict[str, Any]:
        return changed(compute={"speed": {"trace": file, "unit": "/s"}, "redraw": "round"})

    def graph(topology: Any) -> dict[str, Any]:
        return changed(network={"topology": topology, "link": link}, **GRAPH)

    def latencies(**key: Any) -> dict[str, Any]:
        law = {"measured": "round-trip", "coordinator": 3, **key}
        return changed(network={"link": {"bandwidth": "1 Mbit/s"}, "latency_matrix": law})

    ml = (
        b'<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        b'<graph edgedefault="undirected"><node id="0"/><node id="1"/><node id="2"/>'
        b'<edge source="0" target="1"/><edge source="1" target="2"/></graph></graphml>'
    )
    npz_data = {**BASE["problem"], "data": {"source": "npz", "file": "data.npz"}}
    own = changed(plugins=["own.py"], algorithm={"name": "own"})
    study = {"name": "few", "base": "good.yaml", "grid": {"seed": [1, 2]}}
    return {
        "csv": ({"data.csv": csv}, _table("csv", "data.csv")),
        "csv.gz": ({"data.csv.gz": gzip.compress(csv)}, _table("csv", "data.csv.gz")),
        "parquet": ({"data.parquet": _parquet(table)}, _table("parquet", "data.parquet")),
        "npz": ({"data.npz": _npz(**arrays)}, changed(problem=npz_data)),
        "rates": ({"up.csv": rates}, up("up.csv")),
        "rates.npz": ({"up.npz": _npz(a=[[0, 1.0], [5, 2.0], [9, 0.5]])}, up("up.npz")),
        "speeds": ({"v.csv": b"slow,fast\n310,900\n290,940\n"}, speed("v.csv")),
        "speeds.npz": ({"v.npz": _npz(slow=[310.0, 290.0], fast=[900.0])}, speed("v.npz")),
        "trips": ({"rtt.npz": _npz(rtt_ms=matrix)}, latencies(file="rtt.npz")),
        "trips.csv": (
            {"rtt.csv": b"0,20,20,20\n20,0,20,20\n20,20,0,20\n20,20,20,0\n"},
            latencies(file="rtt.csv", unit="ms"),
        ),
        "churn": (
            {"away.csv": b"time,0,1,2\n0,1,1,1\n.5,1,0,1\n1,1,1,1\n"},
            changed(churn={"trace": "away.csv"}),
        ),
        "invited": (
            {"who.csv": b"round,agent\n1,0\n1,1\n2,2\n3,0\n3,1\n"},
            changed(participation={"trace": "who.csv"}),
        ),
        "contacts": (
            {"meet.csv": b"agent,peer,begin,end\n0,1,0,30\n1,2,20,50\n2,0,40,70\n"},
            graph({"contacts": "meet.csv"}),
        ),
        "graphml": ({"net.graphml": ml}, graph({"graph": "net.graphml"})),
        "plugin": ({"own.py": PLUGIN}, own),
        "network": (
            {"net.yaml": as_yaml({"network": {"link": link}, "compute": {"speed": "9 /s"}})},
            changed(network="net.yaml"),
        ),
        "study": ({"good.yaml": as_yaml(BASE), "study.yaml": as_yaml(study)}, BASE),
    }
