"""The player in a browser: it plays, pauses, jumps to a round, and draws what the log says."""

import math
import threading
import time

import numpy as np
import pytest
from naive import moving
from report_runs import hostile, manipulated, played

from desim.interface.player.animated import page as page_of
from desim.interface.player.animated import player
from desim.interface.player.local_server import UNREAD, LocalServer, Watched
from desim.interface.player.moves import ticks
from desim.interface.player.scene import packed, scene

pytestmark = pytest.mark.slow
STAR = {
    "name": "seen", "problem__agents": 5, 
    "algorithm": {"name": "fed-plt", "rho": 1.0, "local": {"solver": "noisy", "epochs": 2}},
    "network": {"link": {"latency": {"uniform": ["40 ms", "90 ms"]}}},
    "compute": {"speed": {"uniform": [40, 200]}}, "stop": {"rounds": 8},
}  # fmt: skip


@pytest.fixture(scope="module")
def star(tmp_path_factory):
    """A run of a star, its player, and the rows of its log."""
    run = played(tmp_path_factory.mktemp("star") / "r", **STAR)
    return run, player(run, run.directory / "player.html"), run.events.to_dict("records")


DRAWN = "new Promise((over) => requestAnimationFrame(() => requestAnimationFrame(over)))"


def until(page, what):
    """Wait for what is asked of the page, whose policy allows no waiting inside it."""
    for _ in range(600):
        if page.evaluate(what):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never so: {what}")


def state(page):
    until(page, "window.player !== undefined")
    page.evaluate(DRAWN)
    return page.evaluate("window.player.state()")


def unlike(shown, rows, when, twin=moving):
    """What a page shows otherwise than the log says it."""
    dots = {}
    for dot in shown["dots"]:
        dots.setdefault((dot["source"], dot["target"]), []).append(dot["share"])
    hand = {(s, t): one for (s, t, _), one in twin.under_way(rows, when).items()}
    same = dots.keys() == hand.keys() and all(
        np.allclose(sorted(dots[key]), hand[key], atol=1e-4) for key in dots
    )
    waits = {(one["agent"], one["closer"]) for one in shown["waits"]}
    parts = {
        "messages": same,
        "computing": set(shown["computing"]) == twin.computing(rows, when),
        "round": shown["round"] == twin.rounds_over(rows, when),
        "waits": waits == twin.awaited(rows, when),
    }
    return {name for name, right in parts.items() if not right}


class Later:
    """A wrong twin: everything a tenth of a second later."""

    def __getattr__(self, name):
        return lambda rows, when: getattr(moving, name)(rows, when - 0.1)


def test_a_player_plays_pauses_and_jumps_and_draws_what_the_log_says(star, opened):
    run, path, rows = star
    page = opened(path, viewport={"width": 1200, "height": 900})
    first = state(page)
    assert (first["time"], first["playing"]) == (0.0, False)
    page.get_by_role("button", name="Play").click()
    until(page, "window.player.state().time > 0.2")
    assert state(page)["playing"]
    page.keyboard.press("Space")  # on the button that has the focus: one press, not two
    stopped = state(page)
    assert not stopped["playing"]
    assert state(page)["time"] == stopped["time"]
    assert stopped["frames"] > first["frames"] + 3
    wrong = []
    for share in (0.11, 0.23, 0.42, 0.58, 0.77):  # of the timeline's slider
        page.evaluate(
            "(share) => { const one = document.getElementById('time');"
            "one.value = String(Math.round(share * 100000));"
            "one.dispatchEvent(new Event('input')); }",
            share,
        )
        shown = state(page)
        assert shown["time"] == pytest.approx(share * run.manifest["time"])
        assert unlike(shown, rows, shown["time"]) == set()
        wrong.append(unlike(shown, rows, shown["time"], Later()))
    assert all(wrong)
    # A dot is on the straight line between two nodes, a little to its right.
    dots = [dot for dot in shown["dots"] if dot["share"] < 1.0]
    for dot in dots:
        begin, end = (
            np.array(shown["nodes"][one] if one >= 0 else _middle(shown))
            for one in (dot["source"], dot["target"])
        )
        aside = np.array([dot["x"], dot["y"]]) - (begin + dot["share"] * (end - begin))
        assert np.hypot(*aside) == pytest.approx(3.5, abs=1e-6)
    # A round that is picked in the curve.
    chart = page.locator("#chart")
    box = chart.bounding_box()
    curve = run.curve("error")
    row = curve.iloc[5]
    x = 58 + (box["width"] - 68) * row["time"] / run.manifest["time"]
    chart.click(position={"x": x + 2, "y": box["height"] / 2})
    picked = state(page)
    assert picked["time"] == pytest.approx(row["time"], rel=1e-5)
    assert picked["metric"] == f"{row['value']:.4g}"
    assert float(picked["epsilon"]) == pytest.approx(spent(run, row["time"]), rel=1e-3)
    words = page.locator("#said").inner_text()
    assert f"round {picked['round']}, error {picked['metric']}" in words
    assert page.complaints == []


def _middle(shown):
    return np.mean(shown["nodes"], axis=0)  # of a star of equal angles


def spent(run, when):
    """Epsilon of the agent that has spent most by then."""
    rows = run.epsilon()
    return rows.loc[rows["time"] <= when, "epsilon"].max()


def test_the_keyboard_narrow_dark_and_without_motion(star, opened):
    run, path, _ = star
    page = opened(
        path, viewport={"width": 360, "height": 700}, color_scheme="dark", reduced_motion="reduce"
    )
    state(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    ends = run.events[(run.events["kind"] == "aggregate") & (run.events["agent"] < 0)]["time"]
    for press, round_ in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 8)):
        page.keyboard.press(press)
        shown = state(page)
        assert shown["round"] == round_
        if press != "End":
            assert shown["time"] == pytest.approx(ends.iloc[round_ - 1], rel=1e-6)
        assert shown["metric"] == f"{run.curve('error')['value'].iloc[round_]:.4g}"
        assert shown["waits"] == [] or press != "End"
    page.keyboard.press("Home")
    before = state(page)
    assert before["time"] == 0.0
    page.keyboard.press("+")
    assert state(page)["speed"] > before["speed"]
    page.keyboard.press("-")
    page.keyboard.press("Shift+ArrowRight")
    assert 0.0 < state(page)["time"] < ends.iloc[0]
    page.keyboard.press("Home")
    page.locator("body").press("Space")
    until(page, "window.player.state().time > 0")
    steps = state(page)
    assert steps["time"] == pytest.approx(steps["speed"])  # one step, and none within a second
    page.keyboard.press("Space")
    assert page.locator("#said").get_attribute("aria-live") == "polite"
    page.keyboard.press("Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    assert page.complaints == []


def test_a_page_that_was_opened_before_anything_was_stored_follows(star, opened, tmp_path):
    run, _, _ = star
    seen = scene(run)
    early = {**UNREAD, "name": "early"}
    path = tmp_path / "early.html"
    path.write_text(page_of({**early, "asks": False}), "utf-8")
    page = opened(path)
    assert state(page)["end"] == 0.0
    page.evaluate("(data) => show(data)", {**seen, "plays": True})
    until(page, f"window.player.state().time > {0.5 * run.manifest['time']}")
    end = 10.0 * run.manifest["time"]  # of what was long ago the page knows no more who computed
    page.evaluate("(data) => show(data)", {**seen, "plays": True, "end": end, "since": 0.95 * end})
    assert state(page)["time"] >= 0.95 * end
    curve = run.curve("error")[:3]  # of which the rest is not stored yet
    part = {"ticks": packed(ticks(curve["time"].to_numpy(float), seen["end"]), True),
            "value": packed(curve["value"].to_numpy(float)), "turns": 2}  # fmt: skip
    (error,) = (one for one in seen["curves"] if one["name"] == "error")
    page.evaluate("(data) => show(data)", {**seen, "plays": True, "curves": [{**error, **part}]})
    until(page, "document.getElementById('f-metric').textContent.endsWith(', in round 2')")
    page.evaluate("(data) => show(data)", seen)
    shown = state(page)
    assert page.locator("#f-metric").inner_text() == f"{run.curve('error')['value'].iloc[-1]:.4g}"
    assert (shown["time"], shown["playing"]) == (run.manifest["time"], False)
    over = {"left": "about {}: round 3", "over_at": time.time() + 7330.0}
    page.evaluate("(data) => show(data)", {**seen, **over, "plays": True, "run": "the next"})
    assert page.locator("#f-left").inner_text() == "about 2 h 2 min: round 3"
    assert state(page)["following"]
    late = {**seen, **over, "plays": True, "over_at": time.time() - 9.0}
    page.evaluate("(data) => show(data)", {**late, "run": "the next"})
    assert page.locator("#f-left").inner_text() == "over by now, if all went on so: round 3"
    assert page.complaints == []


def test_a_page_follows_a_run_until_it_is_gone(tmp_path, opened, chromium, monkeypatch):
    monkeypatch.setattr("desim.runs.run.busy", lambda path: True)
    run = manipulated(hostile(played(tmp_path / "r")), status="running", reason="")
    monkeypatch.setattr("desim.interface.player.local_server.PATIENCE", None)
    with LocalServer(Watched(run.directory, clock=lambda: math.inf)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        page = chromium.new_page()
        said = []
        page.on("console", lambda one: said.append(one.text))
        page.on("dialog", lambda one: said.append(one.message))
        page.goto(server.url)
        assert state(page)["following"]
        assert page.title() != "owned"
        manipulated(run, status="failed", reason="it broke")
        until(page, "window.player.state().status === 'failed'")
        assert page.locator("#reason").inner_text() == "it broke"
        (run.directory / "manifest.json").unlink()
        page.locator("#trouble").wait_for(state="visible")
        assert "not a run directory" in page.locator("#trouble").inner_text()
        server.shutdown()
        assert said == []
        page.close()
