"""Reports in a browser: they show what the run was, respond to the keyboard, and load nothing."""

import numpy as np
import pytest
from report_runs import HOSTILE, four

import desim
from desim.interface.plots.curves import beginning
from desim.interface.plots.drawable import band

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A report about four runs."""
    folder = tmp_path_factory.mktemp("runs")
    return desim.report(four(folder), folder / "report.html")


@pytest.fixture(scope="module")
def functions(path, chromium):
    """A page of which tests call functions, and change nothing."""
    page = chromium.new_page()
    page.goto(path.as_uri())
    yield page
    page.close()


def test_a_report_shows_its_runs_and_loads_nothing(path, opened):
    page = opened(path)
    assert page.locator(".chart canvas").count() == 2
    ended = page.locator("#results tbody tr")
    assert ended.count() == 3 + 4
    assert [row.is_visible() for row in ended.all()] == [True] * 3 + [False] * 4
    assert page.complaints == []


def test_a_hostile_name_is_only_text(path, opened):
    page = opened(path)
    assert page.title().startswith("small, slow, </script>")
    assert HOSTILE in page.locator("#results").inner_text()
    assert page.complaints == []


def test_the_policy_stops_what_escaping_would_not(path, tmp_path, opened):
    """The page with a script and a picture smuggled in: both are refused, and that is said."""
    smuggled = "<script>document.title='owned'</script><img src='https://example.org/x.png'><main"
    open_page = tmp_path / "smuggled.html"
    open_page.write_text(path.read_text("utf-8").replace("<main", smuggled), "utf-8")
    page = opened(open_page)
    assert page.title() != "owned"
    refused = [text for text in page.complaints if "Content Security Policy" in text]
    assert len(refused) == 2
    without = tmp_path / "open.html"
    without.write_text(open_page.read_text("utf-8").replace("Content-Security", "X"), "utf-8")
    assert opened(without).title() == "owned"


def table_of(chart):
    """Heads and cells of what a chart says as a table."""
    table = chart.locator(".numbers table")
    heads = table.locator("thead th").all_inner_texts()
    rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]
    return heads, rows


def test_charts_respond_and_say_the_same_as_tables(path, opened):
    page = opened(path)
    chart = page.locator(".chart").first
    chart.locator("summary").click()
    heads, _ = table_of(chart)
    assert heads[0] == "virtual time (ms)"
    assert heads[1:3] == ["small: median and range of 2 seeds", "slow"]
    chart.get_by_text("rounds", exact=True).click()
    chart.get_by_text("seeds as a band").click()
    heads, rows = table_of(chart)
    assert heads[:3] == ["round", "small, seed 3", "small, seed 4"]
    assert [row[0] for row in rows][-1] == "6"
    chart.get_by_role("checkbox", name="slow").uncheck()
    assert "slow" not in table_of(chart)[0]
    chart.locator("[name=metric]").select_option("consensus")
    assert table_of(chart)[1][0][1] == "0"
    assert page.complaints == []


def test_the_keyboard_moves_and_zooms(path, opened):
    page = opened(path)
    plot, said = page.locator(".plot").first, page.locator(".readout").first
    plot.focus()
    page.keyboard.press("End")
    assert said.inner_text().startswith("virtual time (ms) ")
    page.keyboard.press("Home")
    assert "small: median and range of 2 seeds 3 (3 to 3)" in said.inner_text()
    page.keyboard.press("+")
    assert said.inner_text().startswith("From 0 to ")
    zoomed = page.evaluate("page.charts[0].chart.drawn.scales.x.max")
    page.keyboard.press("0")
    assert page.evaluate("page.charts[0].chart.drawn.scales.x.max") == pytest.approx(2 * zoomed)
    assert "small" in plot.get_attribute("aria-label")


def test_hover_tells_the_value_that_holds(path, opened):
    page = opened(path)
    over = page.locator(".u-over").first
    over.scroll_into_view_if_needed()
    over.hover(position={"x": 5, "y": 50})
    tip = page.locator(".tip").first
    assert "small: median and range of 2 seeds" in tip.inner_text()
    assert "slow" in tip.inner_text()


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("n", [2, 11])
def test_a_band_is_that_of_the_figures(functions, n, failed):
    """The script's median and band against those of `desim plot`, which share nothing with it."""
    rng = np.random.default_rng(n)
    courses = [
        (np.concatenate([[0.0], np.sort(rng.random(8))]), rng.random(9).round(6)) for _ in range(n)
    ]
    courses[0][1][4] = np.nan
    whole, (where, value) = courses[:-1], courses[-1]
    after, end = np.nextafter(where[-1], 2.0), max(x[-1] for x, _ in whole)
    broken = np.append(where, [after, max(after, end)]), np.append(value, [np.nan, np.nan])
    at, *expected = band([*whole, broken] if failed else courses, rising=False)
    expected, at = [one[at != after] for one in expected], at[at != after]
    drawn = [
        {"xs": x.tolist(), "ys": [None if np.isnan(y) else y for y in value], "until": x[-1]}
        for x, value in courses
    ]
    drawn[-1]["failed"] = failed
    found = functions.evaluate("courses => band('a', 0, courses, false)", drawn)
    np.testing.assert_allclose(found["xs"], at)
    for name, values in zip(("low", "ys", "high"), expected, strict=True):
        shown = [np.nan if y is None else y for y in found[name]]
        np.testing.assert_allclose(shown, values)
    wrong = functions.evaluate("courses => band('a', 0, courses, true)", drawn)
    assert wrong["high"] != found["high"] or wrong["ys"] != found["ys"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_switch(path, opened, scheme):
    page = opened(path, color_scheme=scheme)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour) == "rgb(255, 255, 255)"
    assert light == (scheme == "light")
    page.locator("#theme").select_option("dark" if light else "light")
    assert (page.evaluate(colour) == "rgb(255, 255, 255)") != light


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_stand_out(path, opened, scheme):
    """WCAG 2.2 AA: 4.5 to 1 for text, 3 to 1 for lines."""
    page = opened(path, color_scheme=scheme)
    named = "names => names.map((name) => colour(name))"
    ground, panel, warned = page.evaluate(named, ["--page", "--panel", "--caution-page"])
    text, soft, link = page.evaluate(named, ["--text", "--soft", "--link"])
    lines = page.evaluate(named, [f"--c{n}" for n in range(7)])
    assert min(contrast(text, one) for one in (ground, panel, warned)) > 4.5
    assert min(contrast(one, ground) for one in (soft, link)) > 4.5
    assert min(contrast(one, ground) for one in lines) > 3.0
    assert contrast(ground, warned) < 3.0  # what fails is seen to fail


def test_a_narrow_window_has_no_scroll_bar_of_its_own(path, opened):
    page = opened(path, viewport={"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_nothing_of_a_table_is_hidden(path, opened):
    """Wide: bars end within the page. Narrow: every cell is in view, under its column's name."""
    page = opened(path, viewport={"width": 1400, "height": 900})
    beyond = """() => [...document.querySelectorAll("svg.bar, td, tbody th")]
        .filter((one) => one.checkVisibility() && !one.closest("#scenario, .numbers"))
        .filter((one) => { const box = one.closest(".scroll").getBoundingClientRect(),
          own = one.getBoundingClientRect(); return own.right > box.right + 1; }).length"""
    assert page.evaluate(beyond) == 0
    narrow = opened(path, viewport={"width": 400, "height": 900})
    assert narrow.evaluate(beyond) == 0
    head = "one => getComputedStyle(one, '::before').content"
    cell = narrow.locator("#results tbody td").first
    assert cell.evaluate(head) == '"status"'
    assert page.locator("#results tbody td").first.evaluate(head) == "none"
    squeezed = "() => { document.querySelector('#devices table').style.width = '200%'; }"
    wide = opened(path, viewport={"width": 1400, "height": 900})
    wide.evaluate(squeezed)
    assert wide.evaluate(beyond) > 0  # what is cut is seen to be cut


def test_a_longer_bar_is_seen_to_be_longer(path, opened):
    """Bars of one table share one scale, so that 86 % and 94 % do not look alike."""
    page = opened(path, viewport={"width": 1400, "height": 900})
    widths = page.evaluate(
        "[...document.querySelectorAll('#devices table svg.bar')].filter((one) =>"
        " one.checkVisibility()).map((one) => one.getBoundingClientRect().width)"
    )
    assert len(set(np.round(widths[:3]))) == 1
    assert min(widths) > 120.0


@pytest.mark.parametrize("rising", [True, False])
def test_axes_begin_where_those_of_the_figures_do(functions, rising):
    sign = 1.0 if rising else -1.0
    rng = np.random.default_rng(5)
    x = np.arange(31.0)
    lines = []
    for start in (0.2, 0.25):
        value = np.concatenate([[start], 0.9 + 0.03 * rng.random(30)])
        low, high = value - 0.02 * rng.random(31), value + 0.02 * rng.random(31)
        ends = (low, high) if rising else (high, low)
        lines.append((x, sign * value, *(sign * one for one in ends)))
    lines[1] = lines[1][:2]
    drawn = [
        {"xs": x.tolist(), "ys": y.tolist()}
        | (dict(zip(("low", "high"), (e.tolist() for e in ends), strict=True)) if ends else {})
        for x, y, *ends in lines
    ]
    began = "([curves, rising]) => beginning(curves, rising)"
    found = functions.evaluate(began, [drawn, rising])
    edge, firsts = beginning(lines, rising)
    assert found["edge"] == pytest.approx(edge)
    assert found["firsts"] == pytest.approx(firsts)
    other = functions.evaluate(began, [drawn, not rising])
    assert other is None
    assert beginning(lines, not rising) is None
    assert functions.evaluate("curves => beginning(curves.slice(1), true)", drawn) is None
