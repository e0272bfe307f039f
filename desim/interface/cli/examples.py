"""Examples of commands, which stand below what `--help` says of them."""

EXAMPLES = {
    "run": ["desim run quickstart --set network=satellite -o runs/satellite"],
    "resume": ["desim resume runs/quickstart --rounds 80"],
    "check": ["desim check scenario.yaml --set network.link.transport=tcp"],
    "warmup": ["desim warmup quickstart"],
    "list": ["desim list networks"],
    "show": ["desim show runs/quickstart"],
    "compare": [
        "desim compare runs/quickstart runs/satellite --target accuracy=0.93",
        "desim compare runs/real runs/simulated",
    ],
    "calibrate": [
        "desim calibrate runs/real -o measured.yaml",
        "desim calibrate --messages pings.csv",
        "desim calibrate --here quickstart",
    ],
    "export": ["desim export runs/quickstart --to csv"],
    "plot": [
        "desim plot runs/quickstart runs/satellite --metric accuracy -o accuracy.png",
        "desim plot runs/real runs/simulated --kind clocks",
    ],
    "report": ["desim report runs/quickstart runs/satellite -o report.html"],
    "audit": ["desim audit quickstart"],
    "privacy": ["desim privacy runs/quickstart --view coordinator"],
    "retime": ["desim retime runs/quickstart --network satellite -o runs/told-again"],
    "replay": ["desim replay runs/quickstart"],
    "study": ["desim study study.yaml"],
    "tune": ["desim tune tuner.yaml --figure tuned.png"],
    "deploy": [
        "desim deploy quickstart",
        "desim deploy quickstart --loopback -o runs/real",
        "desim deploy quickstart --hosts hosts.yaml",
    ],
    "join": ["desim join 10.0.0.7:7077 --with beta.invitation"],
    "robust": [
        "desim robust a.yaml b.yaml --target error=1e-3",
        "desim robust contest.yaml --target error=1e-6 --vary latency=0.1..10",
    ],
    "schema": ["desim schema"],
}


def below(name: str) -> str:
    """What stands below the help of a command: an example a line."""
    known = EXAMPLES[name]
    head = "Example" if len(known) == 1 else "Examples"
    return "\n\n".join([f"{head}: {known[0]}", *known[1:]])
