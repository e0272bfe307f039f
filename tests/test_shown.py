"""What runs, scenarios and studies look like in a notebook and at the prompt; tables of words."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from mutant import mutant
from stores import ChangedTable

import desim
from desim import tabulated
from desim.errors import InputError
from desim.experiments.audit import stored
from desim.experiments.audit.stored import Audit
from desim.experiments.audit.verdict import Claim, Finding
from desim.experiments.studies import study
from desim.experiments.tuning import tune
from desim.runs.reading import facts

HOSTILE = "<script>alert(1)</script> & $x_1$ | 50% # {y} ~ ^ \\ \"'"
SCENARIO = {
    "name": "<b>small",
    "problem": {
        "agents": 3,
        "data": {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 4},
        "loss": "logistic",
        "regularizer": {"l2": 0.1},
    },
    "algorithm": {"name": "fed-plt", "rho": 1.0},
    "stop": {"rounds": 3},
}


def ending_in_nan(metrics):
    """The columns, of which the last value is nan."""
    return {**metrics, "value": np.append(metrics["value"][:-1], np.nan)}


class Tags(HTMLParser):
    """Tags in their order, and whether every one is closed by its own."""

    def __init__(self, text):
        super().__init__()
        self.seen, self.open = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def run():
    return desim.run(SCENARIO)


def test_prompts_are_one_line(run):
    assert re.fullmatch(r"<Run <b>small: done, 3 rounds in [\d.]+ s>", repr(run))
    assert repr(run.scenario) == (
        "<Scenario <b>small: fed-plt, 3 agents, logistic loss on synthetic data, star topology, "
        "no noise, until 3 rounds, seed 0>"
    )
    assert str(run.scenario) == repr(run.scenario)


def test_runs_and_scenarios_are_cards(run):
    for shown in (run, run.scenario):
        html = shown._repr_html_()
        assert {"div", "table", "tr", "th", "td", "strong"} <= {*Tags(html).seen}
        assert "&lt;b&gt;small" in html
    assert "rho: 1.0" in run.scenario._repr_html_()
    assert "<td" in run._repr_html_()
    assert "3 rounds done" in run._repr_html_()


def test_a_study_shows_its_measures():
    base = {**SCENARIO, "stop": {"rounds": 3, "metric": {"error": 1e-30}}}
    made = desim.study({"base": base, "grid": {"algorithm.rho": [1.0, 2.0]}}, workers=0)
    html = made._repr_html_()
    assert Tags(html).seen.count("table") == 2  # time and bytes to the target
    for text in ("time to error 1e-30", "never", "rho 2", "2 done"):
        assert text in html


@pytest.fixture(scope="module")
def of_experiments():
    """A study, a tuner, a ranking and an audit whose names, labels and notes are hostile."""
    named = "<script>alert(1)"  # that can name a directory
    base = {**SCENARIO, "name": named}
    labelled = [{"label": HOSTILE, "algorithm.rho": 1.0}, {"label": "b", "algorithm.rho": 2.0}]
    rhos = {"vary": {"algorithm.rho": [1.0, 2.0]}, "until": {"error": 1e9}, "seeds": [1],
            "fresh": 0, "runs": 2, "sampler": "grid"}  # fmt: skip
    lasting = {"name": "b", "stop": {"rounds": 4}}
    claim, none = Claim(HOSTILE, 1.0, 1e-5), (np.zeros(1), np.zeros(1))
    return (
        desim.study({"name": named, "base": base, "list": labelled}, workers=0),
        desim.tune({"name": named, "base": base, "tune": rhos}, workers=0),
        desim.robust([base, {**base, **lasting}], {"error": 1e9}, worlds=4, workers=1),
        Audit(name=HOSTILE, view="coordinator", agent=0, findings=(Finding(claim, 0.01, ()),),
              notes=(HOSTILE,), title="", played={}, scores=None, arrays={}, samples=none, of=""),
    )  # fmt: skip


def test_what_experiments_show_takes_no_name_as_code(of_experiments, monkeypatch):
    for shown in of_experiments:
        html = shown._repr_html_()
        assert "script" not in Tags(html).seen
        assert "&lt;script&gt;" in html
        assert "<table></table>" not in html
    for module in (study, tune, stored, tabulated):  # who writes the cards, and their tables
        twin = mutant(tabulated, "import escape", "import unescape as escape")
        for name in ("card", "_cells"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(twin, name))
    for shown in of_experiments:
        with pytest.raises(AssertionError):
            assert "script" not in Tags(shown._repr_html_()).seen


def check_safe(module):
    """No letter of a cell is code in any format."""
    table = module.Table(HOSTILE, ("a", "b"), [("1", HOSTILE), ("22", "")], (HOSTILE,))
    html = table.html()
    assert Tags(html).seen.count("td") == 4
    assert "script" not in Tags(html).seen
    latex = table.latex()
    assert r"\$x\_1\$" in latex
    assert r"50\%" in latex
    assert r"\textbackslash{}" in latex
    assert latex.count("&") - latex.count(r"\&") == 3
    for line in table.markdown().splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 3
        assert not re.search(r"(?<!\\)<", line)
    assert table.text().splitlines()[:3] == [HOSTILE, "  a   b", f"  1   {HOSTILE}"]


def test_cells_are_text_in_every_format():
    check_safe(tabulated)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('style="{CELL}">{escape(cell)}</td>', 'style="{CELL}">{cell}</td>'),
        ('"%": r"\\%", ', ""),
        ('"&": r"\\&", ', ""),
        ("<>|])", ">])"),
        ('" " * (width - _width(cell))', '""'),
    ],
)
def test_code_in_a_cell_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_safe(mutant(tabulated, right, wrong))


@pytest.mark.parametrize("option", ["[1em]", "*"])
def test_a_line_of_latex_begins_with_no_option(option):
    assert f"{{{option[0]}}}{option[1:]} & b" in tabulated.Table("t", "ab", [(option, "b")]).latex()


def test_the_last_value_is_told_with_its_own_time(run):
    last = run.metrics.iloc[-1]
    store = ChangedTable(run.store, "metrics", ending_in_nan)
    spoilt = desim.Run(run.manifest, store, scenario=run.scenario)
    told = f"not finite (measured at {last['time']:.6g} s, round 3)"
    assert dict(facts.facts(spoilt))[last["metric"]] == told
    assert told in spoilt._repr_html_()


def test_a_run_without_noise_has_one_wording(run, tmp_path):
    assert dict(facts.facts(run))["privacy"] == "infinite (no noise)"
    assert "infinite (no noise)" in str(desim.compare([run], delta=1e-6))
    text = desim.report([run], tmp_path / "r.html").read_text()
    assert ">infinite (no noise)<" in text


def test_other_formats_are_refused():
    with pytest.raises(InputError, match="did you mean 'latex'"):
        tabulated.Table("t", ("a",), [("1",)]).written("latx")


def test_many_events_are_not_read_for_a_card(run, monkeypatch):
    monkeypatch.setattr(facts, "MANY", 10)
    quick = dict(facts.facts(run, quick=True))
    assert "slowest" not in quick
    assert quick[""].startswith("more than 10 events")
    assert "slowest" in dict(facts.facts(run))


def test_labels_of_latex_are_of_one_table():
    """Within a call, and in a paper with the tables of another one."""
    one, other = (tabulated.Table("at the end", "ab", [(text, "1")]) for text in "xy")
    pages = [tabulated.together(some, "latex") for some in ([one, one, other], [other, one])]
    pages.append(tabulated.together([one, one], "latex", name="Wards 2"))
    labels = [label for page in pages for label in re.findall(r"\\label\{(.*?)\}", page)]
    assert len(labels) == len({*labels}) == 7
    assert labels[-2:] == ["tab:wards-2-at-the-end", "tab:wards-2-at-the-end-2"]
    assert all(page.startswith(r"% in the preamble: \usepackage{booktabs}") for page in pages)
    assert tabulated.together([one], "latex") == tabulated.together([one], "latex")
    assert "label" not in tabulated.together([one], "markdown")
