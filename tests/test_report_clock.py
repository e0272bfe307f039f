"""A report of a deployed run beside those that simulate it: errors of the clock, and a figure."""

import re
from base64 import b64decode
from html import unescape

import pytest
from mutant import mutant
from test_clock_errors import DEADLINE, OTHER, played

import desim
from desim.deployments.fidelity import matching
from desim.interface import reports
from desim.interface.reports import page, results

FIGURE = re.compile(r'<img class="drawn" src="data:image/svg\+xml;base64,([^"]*)" alt="([^"]*)"')


@pytest.fixture(scope="module")
def runs():
    """A run that stands for a deployed one, one that simulates it, and one of another scenario."""
    made = [played(network=OTHER, real=True), played(), played(**DEADLINE)]
    for run, name in zip(made, ("real", "twin", "other"), strict=True):
        run.manifest["name"] = name
    return made


@pytest.fixture(scope="module")
def written(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("out") / "r.html"
    return desim.report(runs, path, {"error": 0.5}).read_text("utf-8")


def section(text):
    return re.search(r'<section id="clock".*?</section>', text, re.DOTALL).group()


def words(text):
    return unescape(re.sub(r"<[^>]*>|\s+", " ", text))


def check_section(runs, text):
    """Every cell of the tables of `desim compare` is there, in order."""
    said, cells = words(section(text)), []
    for table in desim.clock_errors(runs[0], runs[1], {"error": [0.5]}).tables:
        cells += [cell for row in table.rows for cell in row]
    place = 0
    for cell in cells:
        place = said.find(" ".join(cell.split()), place)
        assert place >= 0, cell
    assert said.count("Errors of the clock of") == 1


def test_the_page_has_the_tables_of_compare(runs, written):
    check_section(runs, written)
    said = words(section(written))
    assert "until error 0.5" in said
    assert "different scenarios: they differ in policy" in said
    assert '<a href="#clock">' in written


def test_targets_that_are_left_out_are_noticed(runs, tmp_path, monkeypatch):
    twin = mutant(results, "asked.setdefault(name, []).append(value)", "continue")
    monkeypatch.setattr(reports, "clocks", twin.clocks)
    path = desim.report(runs, tmp_path / "r.html", {"error": 0.5})
    with pytest.raises(AssertionError):
        check_section(runs, path.read_text("utf-8"))


def test_the_page_has_the_figure_of_compare(runs, written, tmp_path):
    (found,) = FIGURE.findall(written)
    path = tmp_path / "clocks.svg"
    desim.clock_errors(runs[0], runs[1]).plot(path)
    assert b64decode(found[0]) == path.read_bytes()
    assert "twin simulates it" in found[1]
    assert "img-src data:;" in written


def test_a_page_without_a_deployed_run_has_neither(runs, tmp_path):
    text = desim.report(runs[1:], tmp_path / "r.html").read_text("utf-8")
    assert 'id="clock"' not in text
    assert '"#clock"' not in text
    assert "img-src" not in text
    assert "img-src" not in page.policy([], [], figures=False)


@pytest.mark.slow
def test_of_many_simulations_the_first_are_held_against_it(runs, tmp_path):
    others = [
        played(network={"link": {"latency": f"{10 + k} ms"}})
        for k in range(results.SIMULATIONS + 2)
    ]
    text = desim.report([runs[0], *others], tmp_path / "r.html").read_text("utf-8")
    assert len(FIGURE.findall(text)) == results.SIMULATIONS
    assert "Of 6 other runs the first 4 are held against it." in words(section(text))


def test_a_log_that_cannot_be_held_against_another_is_said(runs, tmp_path):
    text = desim.report([runs[0], played(log="rounds")], tmp_path / "r.html").read_text("utf-8")
    assert not FIGURE.findall(text)
    assert "needs" in words(section(text))


def test_replies_that_the_simulation_has_level_have_no_order():
    real, level = played(network=OTHER, real=True), played(compute={"speed": "1000 /s"})
    found = matching.replies(real, level)
    assert found["pairs"].sum() == 0
    assert found["ordered"].sum() == 0
