"""What is said of a table of `Run.pairwise`, on the command line and in a report."""

from typing import Any

from desim.amounts import epsilon

PAIR_HEADS = ("links away", "pairs", "epsilon, least", "median", "most", "all released")


def largest(table: Any) -> str:
    """Who has learnt most, in which terms."""
    if not len(table):
        return "nobody is there to be learnt of"
    about, most = table.attrs, table.to_dict("records")[int(table["epsilon"].argmax())]
    terms, spent = f"{about['relation']}, delta {about['delta']:g}", epsilon(most["epsilon"])
    if "reason" in about:
        return f"nobody has learnt more than epsilon {spent} of agent {most['agent']} ({terms})"
    return (
        f"observer {most['observer']} has learnt most, epsilon {spent} of agent {most['agent']}, "
        f"of {epsilon(most['local'])} that this agent has released ({terms}, {about['method']})"
    )


def by_links(table: Any) -> list[list[str]]:
    """Rows of words: of each distance how many pairs, and their least, median and most epsilon."""
    return [
        [
            "?" if away < 0 else f"{away:g}", f"{len(some)}",
            *(epsilon(value) for value in some["epsilon"].quantile([0, 0.5, 1], "higher")),
            epsilon(some["local"].max()),
        ]
        for away, some in table.groupby("distance")
    ]  # fmt: skip


def resting(table: Any) -> list[tuple[str, str]]:
    """What the epsilons rest on, and why they are of all that was released, where they are."""
    about = table.attrs
    why = [about["reason"]] if "reason" in about else []
    said = [("reason", f"all that was released is counted: {one}") for one in why]
    return [*said, *(("assumes", text) for text in about["assumptions"])]
