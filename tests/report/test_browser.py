"""Pages in a real browser: no complaints, nothing wider than the window, and slider and pointers that work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import unspool as us
from tests.report import runs

pytestmark = pytest.mark.browser

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")

# A phone, a tablet or half of a screen, and a screen.
WIDTHS = (360, 800, 1400)

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if BROWSER is None or DRIVER is None:
        pytest.skip("there is no Chromium with its driver (chromium and chromium-driver on Debian)")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "folded": us.report(runs.power(120).loss, folder / "folded.html"),
        "truncating": us.report(runs.truncating(8).loss, folder / "truncating.html"),
        "iterate": us.report(runs.iterated(40).loss, folder / "iterate.html"),
    }
    us.compare_reports(made["folded"], made["iterate"], folder / "comparison.html")
    return {path.stem: path for path in folder.iterdir()}


def show(browser: Any, path: Path, width: int = 800, *, dark: bool = False, printed: bool = False) -> None:
    """Show a page as a device with some width does."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme, "media": "print" if printed else ""})
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(path.as_uri())


def pointer_to(browser: Any, selector: str, share: float = 0.5) -> None:
    """Move the pointer over an element, to some share of its width."""
    box = browser.execute_script(
        "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'});"
        "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]",
        selector,
    )
    place = {"type": "mouseMoved", "x": box[0] + share * box[2], "y": box[1] + box[3] / 2}
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", place)


def tip(browser: Any) -> str | None:
    """Return what is shown under the pointer."""
    found = browser.execute_script("const t = document.getElementById('tip'); return t.hidden ? null : t.textContent")
    return None if found is None else str(found)


NAMES = ("folded", "truncating", "iterate", "comparison")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_a_page_fits_the_window_and_nothing_complains(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    show(browser, pages[name], width)
    widths = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert widths == [width, width]
    assert browser.get_log("browser") == []
    # Nothing but the page itself was asked for.
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith(("data:", "blob:"))} == {pages[name].as_uri()}


@pytest.mark.parametrize("width", WIDTHS)
def test_values_are_shown_under_the_pointer(browser: Any, pages: dict[str, Path], width: int) -> None:
    show(browser, pages["folded"], width)
    read = us.load_report(pages["folded"]).data["readings"][0]
    assert tip(browser) is None
    seen = set()
    for share in (0.15, 0.5, 0.97):
        pointer_to(browser, "[data-chart='reading-0'] svg", share)
        step, value = str(tip(browser)).splitlines()
        k = int(step.removeprefix("step "))
        assert float(value.removeprefix("value: ")) == pytest.approx(read["values"][k], rel=1e-9)
        seen.add(k)
    assert len(seen) == 3 and 119 in seen
    box = browser.execute_script("const b = tip.getBoundingClientRect(); return [b.left, b.right, innerWidth]")
    assert 0 <= box[0] and box[1] <= box[2]
    pointer_to(browser, "h1")
    assert tip(browser) is None


@pytest.mark.parametrize("selector", [".block", ".node.op"])
def test_blocks_and_ops_say_what_they_are(browser: Any, pages: dict[str, Path], selector: str) -> None:
    show(browser, pages["folded"])
    pointer_to(browser, selector, 0.03)
    assert "runs.py:" in str(tip(browser))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_slider_moves_along_the_budgets(browser: Any, pages: dict[str, Path], width: int) -> None:
    show(browser, pages["folded"], width)
    rows = us.load_report(pages["folded"]).data["budgets"]["rows"]
    places = []
    for i in (0, len(rows) // 2, len(rows) - 1):
        told = browser.execute_script(
            "const s = document.getElementById('budget'); s.value = arguments[0]; s.dispatchEvent(new Event('input'));"
            "return document.getElementById('budget-told').textContent",
            i,
        )
        assert f"steps run {rows[i]['factor']:.3f} times" in told
        places.append(browser.execute_script("return document.querySelector('.handle').getBoundingClientRect().left"))
    assert places == sorted(places) and places[0] < places[-1]


def test_the_slider_is_moved_by_keys(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["folded"])
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    slider = browser.find_element("id", "budget")
    before = browser.find_element("id", "budget-told").text
    slider.send_keys(keys.HOME)
    assert browser.find_element("id", "budget-told").text != before
    assert slider.get_attribute("value") == "0"


def test_the_raw_data_can_be_saved(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["truncating"])
    text = browser.execute_async_script(
        "const done = arguments[0]; fetch(document.querySelector('[data-save]').href).then(r => r.text()).then(done)"
    )
    assert json.loads(text)["format"] == "unspool report"


def test_dark_and_light_have_papers_of_their_own(browser: Any, pages: dict[str, Path]) -> None:
    papers = []
    for dark in (False, True):
        show(browser, pages["folded"], dark=dark)
        papers.append(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    brightness = [sum(map(int, paper[4:-1].split(","))) for paper in papers]
    assert brightness[0] > 600 and brightness[1] < 150


def test_text_can_be_read_on_its_paper(browser: Any, pages: dict[str, Path]) -> None:
    """Contrast of at least 4.5, as the guidelines for accessibility ask for."""
    script = """
        const number = (s) => s.match(/[\\d.]+/g).slice(0, 3).map(Number);
        const light = (c) => c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
        const papers = [document.body, document.querySelector('figure')];
        const inks = [document.body, document.querySelector('.soft'), document.querySelector('a')];
        return papers.flatMap((p) => inks.map((i) => {
            const a = light(number(getComputedStyle(p).backgroundColor)), b = light(number(getComputedStyle(i).color));
            return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        }));
    """
    for dark in (False, True):
        show(browser, pages["folded"], dark=dark)
        assert min(browser.execute_script(script)) >= 4.5


def test_print_has_white_paper_and_no_slider(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["folded"], dark=True, printed=True)
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    assert browser.execute_script("return getComputedStyle(document.querySelector('.slider')).display") == "none"
    made = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(made["data"]) > 10_000


def test_a_report_inside_of_a_notebook_runs_its_script(browser: Any, tmp_path: Path) -> None:
    inline = us.report(runs.power(30).loss)._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!DOCTYPE html><meta charset=utf-8>{inline}", encoding="utf-8")
    show(browser, tmp_path / "notebook.html")
    browser.switch_to.frame(0)
    try:
        told = browser.execute_script("return document.querySelector('.handle').getAttribute('cx')")
        assert float(told) > 0  # the script has put it there
    finally:
        browser.switch_to.default_content()
    assert browser.get_log("browser") == []
