"""Reports in a browser: they show what the run was, respond to the keyboard, and load nothing."""

import os
import shutil

import pytest

import desim
from desim.errors import InputError
from desim.runs import directory as place

SCENARIO = {
    "name": "small",
    "seed": 3,
    "problem": {
        "agents": 3,
        "data": {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 4},
        "loss": "logistic",
        "regularizer": {"l2": 0.1},
        "clip": 1.0,
    },
    "algorithm": {"name": "dsgd", "alpha": 0.1},
    "network": {"topology": "ring", "link": {"latency": "10 ms"}},
    "compute": {"speed": "100 /s"},
    "privacy": {"noise": {"kind": "gaussian", "sigma": 1.0}},
    "observe": {"metrics": ["error", "consensus"]},
    "stop": {"rounds": 6},
}
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"


def played(folder, **changes):
    return desim.run(SCENARIO, out=folder, overrides=changes)


def manipulated(run):
    """The run of somebody who means harm: its manifest and scenario hold HTML."""
    manifest = {**run.manifest, "name": HOSTILE, "reason": HOSTILE, "status": "failed"}
    place.write_manifest(run.directory, manifest)
    scenario = run.directory / "scenario.yaml"
    scenario.write_text(scenario.read_text("utf-8") + f"# {HOSTILE}\n", "utf-8")
    return desim.open(run.directory)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    latency = {"network.link.latency": "40 ms", "name": "slow"}
    return [
        played(folder / "a"),
        played(folder / "b", seed=4),
        played(folder / "c", **latency),
        manipulated(played(folder / "d")),
    ]


@pytest.fixture(scope="module")
def chromium():
    """A browser; the tests are skipped where there is none, except in CI."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if found is None:
        message = "no chromium here: install the browser to test reports in it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """opened(path): the page, whose `complaints` are all that its console and requests said."""
    pages = []

    def opened(path, **options):
        page = chromium.new_page(**options)
        page.complaints = []
        page.on("console", lambda said: page.complaints.append(said.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda asked: page.complaints.append(asked.url))
        page.on("dialog", lambda asked: page.complaints.append(asked.message))
        page.goto(path.as_uri())
        page.complaints.remove(path.as_uri())
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()


def test_a_report_shows_its_runs_and_loads_nothing(runs, tmp_path, opened):
    page = opened(desim.report(runs, tmp_path / "r.html"))
    assert page.locator(".chart canvas").count() == 2
    assert page.locator("#results tbody tr").count() == len(runs)
    assert page.complaints == []


def test_a_hostile_name_is_only_text(runs, tmp_path, opened):
    page = opened(desim.report(runs, tmp_path / "r.html"))
    assert page.title().startswith("small (")
    assert HOSTILE in page.locator("#results").inner_text()
    assert page.complaints == []


def test_the_policy_stops_what_escaping_would_not(runs, tmp_path, opened):
    """The same page with a script smuggled in: nothing runs, and the browser says so."""
    path = desim.report(runs, tmp_path / "r.html")
    text = path.read_text("utf-8").replace("<main", "<script>document.title='owned'</script><main")
    path.write_text(text, "utf-8")
    page = opened(path)
    assert page.title() != "owned"
    assert "Content Security Policy" in page.complaints[0]


def test_charts_respond(runs, tmp_path, opened):
    page = opened(desim.report(runs, tmp_path / "r.html"))
    chart = page.locator(".chart").first
    chart.locator("summary", has_text="table").click()
    table = chart.locator("table")
    assert "virtual time (ms)" in table.inner_text()
    chart.get_by_text("rounds", exact=True).click()
    assert "round" in table.locator("thead").inner_text()
    columns = table.locator("thead th").count()
    chart.get_by_role("checkbox", name="slow").uncheck()
    assert table.locator("thead th").count() == columns - 1
    chart.locator(".plot").focus()
    page.keyboard.press("ArrowRight")
    assert chart.locator(".readout").inner_text().startswith("round ")
    assert page.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_switch(runs, tmp_path, opened, scheme):
    page = opened(desim.report(runs[0], tmp_path / "r.html"), color_scheme=scheme)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour) == "rgb(255, 255, 255)"
    assert light == (scheme == "light")
    page.locator("#theme").select_option("dark" if light else "light")
    assert (page.evaluate(colour) == "rgb(255, 255, 255)") != light


def test_a_report_needs_runs_and_a_place(runs, tmp_path):
    with pytest.raises(InputError, match="found 0 runs"):
        desim.report([], tmp_path / "r.html")
    with pytest.raises(InputError, match="is a directory"):
        desim.report(runs, tmp_path)
    with pytest.raises(InputError, match="found metric 'accuracy'; allowed: error, consensus"):
        desim.report(runs, tmp_path / "r.html", {"accuracy": 0.9})
    assert not (tmp_path / "r.html").exists()
