"""The HTML report: its text, and how it behaves in a real browser."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import sys
from html.parser import HTMLParser
from io import StringIO
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from drolearn import stress_test
from drolearn.stress.palette import COLOURS, DARK_COLOURS
from drolearn.stress.report import TABLES
from drolearn.stress.text import confidence, interval, number, percent
from tests.examples import noisy

# One browser for all tests.
pytestmark = pytest.mark.xdist_group("browser")

SCRIPT = "<script>alert(1)</script>"
BREAK = '</script><script>alert(1)</script><!--"><img src=x onerror=alert(1)>'
FORMULA = "=1+2"
SWITCHES = ("loss", "divergence")


@pytest.fixture(scope="module")
def report():
    """Two models, losses and divergences, and names that would be scripts if they were HTML."""
    X, y = noisy(n=600)
    models = {
        SCRIPT: LogisticRegression().fit(X[:200], y[:200]),
        "{{ 7 * 7 }} & other": LogisticRegression(C=1e-3).fit(X[:200], y[:200]),
    }
    names = np.array([BREAK, FORMULA, "plain"])[np.arange(400) % 3]
    return stress_test(
        models, X[200:], y[200:], groups={SCRIPT: names, "half": np.arange(400) % 2},
        over={SCRIPT: X[200:, 0], "job": names}, worst_rows=3,
        loss=["log", "zero-one"], divergence=["chi2", "cvar"], random_state=0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def html(report):
    return report.to_html(title=f"Report {SCRIPT}")


# -- the text ------------------------------------------------------------------------------------


def finite(values):
    """JSON and the downloads have no infinite numbers."""
    return values.where(np.isfinite(values))


class Elements(HTMLParser):
    """All elements of a page with their attributes, and the texts of scripts."""

    def __init__(self, text):
        super().__init__()
        self.found, self.texts, self.inside = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.inside = tag

    def handle_data(self, data):
        if self.inside == "script" and data.strip():
            self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_only_its_own_scripts_may_run(html):
    page = Elements(html)
    kinds = [each["type"] for each in page.all("script")]
    assert kinds == ["application/json", "module", "module", "module"]
    [policy] = [each["content"] for each in page.all("meta") if "http-equiv" in each]
    hashes = re.findall(r"sha256-([^']+)", policy)
    digests = [hashlib.sha256(text.encode()).digest() for text in page.texts[1:]]
    assert hashes == [base64.b64encode(each).decode() for each in digests]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'sha256" in policy


def test_nothing_is_loaded_and_licences_are_in_the_file(html):
    page = Elements(html)
    assert not [tag for tag, given in page.found if "src" in given]
    assert {each["href"] for each in page.all("link") + page.all("a")} == {"data:,", "#main"}
    for words in ("BSD 3-Clause License", "ISC License", "The MIT License", "Mike Bostock"):
        assert words in html
    assert len(html) < 1.5e6


def test_the_numbers_in_the_file_are_those_of_the_tables(report, html):
    data = json.loads(Elements(html).texts[0])["tables"]
    assert list(data) == list(TABLES)
    for name in TABLES:
        table, frame = data[name], getattr(report, name)
        assert table["columns"] == list(frame.columns)
        for column in frame.select_dtypes("number"):
            place = table["columns"].index(column)
            values = [np.nan if row[place] is None else row[place] for row in table["data"]]
            np.testing.assert_allclose(values, finite(frame[column]), rtol=1e-12)
    assert BREAK in {row[4] for row in data["groups"]["data"]}


def test_a_reader_can_navigate_by_headings_tables_and_labels(html):
    page = Elements(html)
    assert page.found[0] == ("html", {"lang": "en"})
    levels = [int(tag[1]) for tag, _ in page.found if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(page.all("caption")) == len(page.all("table")) == len(TABLES)
    assert all(each.get("scope") in ("col", "row") for each in page.all("th"))
    ids = {each["id"] for _, each in page.found if "id" in each}
    assert {each["aria-labelledby"] for each in page.all("section")} <= ids


def test_a_report_without_groups_and_baseline_has_only_the_curve(tmp_path):
    path = tmp_path / "report.html"
    report = stress_test(losses=[0.1, 0.4, 0.2, 0.9], rhos=[0, 1], random_state=0)
    text = report.to_html(path)
    assert path.read_text(encoding="utf-8") == text
    assert 'id="table-curve"' in text
    assert 'id="table-groups"' not in text
    assert "<h1>Stress test</h1>" in text


@pytest.mark.parametrize("name", ["jinja2", "vl_convert"])
def test_without_its_libraries_the_error_says_how_to_install_them(report, monkeypatch, name):
    from drolearn.stress import html

    html._libraries.cache_clear()
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"needs (jinja2|vl_convert).* 'drolearn\[stress\]'"):
        report.to_html()


def test_numbers_are_written_with_three_digits():
    assert [number(x) for x in (0.12345, -2.0, 1234.0, np.inf, -np.inf, np.nan)] == [
        "0.123", "−2", "1.23e+03", "∞", "−∞", "–",
    ]  # fmt: skip
    assert [percent(x) for x in (0.0, 0.012, 0.05, 0.5, 0.997, 1.0, np.nan)] == [
        "0%", "1.2%", "5%", "50%", "99.7%", "100%", "–",
    ]  # fmt: skip
    assert interval(0.1, np.nan) == "–"
    assert [confidence(level) for level in (0.95, 0.999)] == ["95%", "99.9%"]


# -- the page in a browser -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """Chromium without a window; it skips the tests where there is none, unless it is required."""
    needed = os.environ.get("DROLEARN_BROWSER") == "required"
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    program = shutil.which("chromedriver")
    if not needed:
        pytest.importorskip("selenium")
        if binary is None or program is None:
            pytest.skip("needs Chromium and its driver (Debian: chromium and chromium-driver)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    profile = tmp_path_factory.mktemp("profile")
    for option in (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
        "--disable-dev-shm-usage --disable-background-networking --disable-component-update "
        f"--window-size=1100,900 --user-data-dir={profile}"
    ).split():
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(program))
    yield browser
    browser.quit()


class Page:
    """The report, open in a browser."""

    def __init__(self, driver, path, shown="log chi2"):
        self.driver = driver
        driver.get_log("browser")
        driver.get_log("performance")
        driver.get(path.as_uri())
        self.wait(shown)

    def wait(self, shown):
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 90, 0.05).until(
            lambda _: self.js("return document.documentElement.dataset.shown") == shown
        )

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def choose(self, name, option):
        """Choose an option by keyboard."""
        select = self.find(f"#{name}")
        if select.get_property("value") != option:
            self.change(select, option)

    def toggle(self, box):
        """Change a box by keyboard."""
        self.change(box, " ")

    def change(self, element, keys):
        """Send keys, and wait until the page shows what is chosen now."""
        self.js("delete document.documentElement.dataset.shown")
        element.send_keys(keys)
        self.wait(" ".join(self.find(f"#{name}").get_property("value") for name in SWITCHES))

    def rows(self, table):
        """The texts of all rows that are shown."""
        return self.js(
            "return [...document.querySelectorAll(`#table-${arguments[0]} tbody tr:not([hidden])`)]"
            ".map(row => [...row.cells].map(cell => cell.textContent))", table,
        )  # fmt: skip

    def reading(self):
        return self.find("#reading").text

    def lines(self):
        """The colours of the lines of the curve."""
        return self.js(
            "return [...document.querySelectorAll('#chart-curve .mark-line path')]"
            ".map(path => path.getAttribute('stroke'))"
        )


@pytest.fixture(scope="module")
def file(html, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html, encoding="utf-8")
    return path


@pytest.fixture
def page(driver, file):
    return Page(driver, file)


def test_it_renders_without_errors_and_requests(page, report):
    assert page.lines() == ["var(--model-0)", "var(--model-1)"]
    points = page.js("return document.querySelectorAll('#chart-groups .mark-symbol path').length")
    assert points == len(report.select("groups"))
    assert page.driver.get_log("browser") == []
    events = [json.loads(each["message"])["message"] for each in page.driver.get_log("performance")]
    asked = {
        each["params"]["request"]["url"].split(":")[0]
        for each in events
        if each["method"] == "Network.requestWillBeSent"
        and each["params"]["documentURL"] == page.driver.current_url  # not the browser's own ones
    }
    assert "file" in asked
    assert asked <= {"file", "data", "blob"}
    charts = page.driver.find_elements("css selector", ".chart")
    assert len(charts) == 2
    assert all("have the numbers" in each.accessible_name.replace("has", "have") for each in charts)


def test_names_stay_text(page):
    assert page.find("h1").text == f"Report {SCRIPT}"
    assert page.find("h3").text == SCRIPT
    assert page.js("return document.querySelectorAll('script').length") == 4
    assert page.js("return document.querySelectorAll('img').length") == 0
    names = {row[0] for row in page.rows("groups")}
    assert {f"{SCRIPT}: {BREAK}", f"{SCRIPT}: {FORMULA}", "half: 0"} <= names
    labels = page.js(
        "return [...document.querySelectorAll('#chart-groups text')].map(t => t.textContent)"
    )
    assert "half: 1" in labels
    assert any(label.startswith("<script>") for label in labels)
    assert SCRIPT in page.reading()
    # A tooltip also shows names as text.
    from selenium.webdriver import ActionChains

    ActionChains(page.driver).move_to_element(
        page.find("#chart-groups .mark-symbol path")
    ).perform()
    tooltip = page.find("#vg-tooltip-element")
    assert SCRIPT in tooltip.text
    assert page.driver.get_log("browser") == []


@pytest.mark.parametrize("loss", ["log", "zero-one"])
@pytest.mark.parametrize("divergence", ["chi2", "cvar"])
def test_switches_show_the_numbers_of_their_loss_and_divergence(page, report, loss, divergence):
    page.choose("loss", loss)
    page.choose("divergence", divergence)
    shown = {(row[0], row[1], row[3]) for row in page.rows("curve")}
    curve = report.select("curve", loss, divergence)
    for share in (1.0, 0.5, 0.1):
        for row in curve[np.isclose(curve["share"], share)].itertuples():
            assert (percent(share), row.model, number(row.loss)) in shown
    expected = report.select("groups", loss, divergence)
    groups = page.rows("groups")
    assert len(groups) == len(expected)
    texts = {
        (number(row.loss), interval(row.low, row.high), percent(row.worst_share))
        for row in expected.itertuples()
    }
    assert {(row[3], row[4], row[7]) for row in groups} == texts
    assert len(page.rows("radii")) == len(report.select("radii", loss, divergence))
    even = report.select("break_even", loss, divergence)
    assert [row[-1] for row in page.rows("break_even")] == even["meaning"].tolist()
    half = curve[np.isclose(curve["share"], 0.5)].iloc[0]
    assert f"{SCRIPT}: {number(half['loss'])} (95% interval" in page.reading()


def test_a_model_can_be_hidden(page, report):
    first, second = page.driver.find_elements("css selector", "input[name=model]")
    page.toggle(first)
    assert page.lines() == ["var(--model-1)"]
    assert {row[1] for row in page.rows("curve")} == {report.curve["model"].unique()[1]}
    assert SCRIPT not in page.reading()
    page.toggle(second)
    assert page.lines() == []
    assert page.rows("curve") == []
    page.toggle(first)
    assert page.lines() == ["var(--model-0)"]
    assert page.driver.get_log("browser") == []


def test_values_follow_the_pointer_and_the_arrow_keys(page, report):
    from selenium.webdriver import ActionChains, Keys

    curve = report.select("curve")
    curve = curve[curve["model"] == SCRIPT].reset_index(drop=True)
    svg = page.find("#chart-curve svg")
    ActionChains(page.driver).move_to_element_with_offset(
        svg, svg.size["width"] // 2 - 3, 0
    ).perform()
    assert f"Radius ρ = {number(curve['rho'].iloc[-1])}:" in page.reading()
    slider = page.find("#radius")
    slider.send_keys(Keys.HOME)
    assert "no shift, the mean of all rows" in page.reading()
    slider.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert f"Radius ρ = {number(curve['rho'][2])}:" in page.reading()
    assert number(curve["loss"][2]) in slider.get_attribute("aria-valuetext")
    slider.send_keys(Keys.END)
    named = report.select("radii")["meaning"].iloc[-1]
    assert f"also holds this change: {named}" in page.reading()


def test_the_keyboard_reaches_everything_and_focus_is_visible(page):
    from selenium.webdriver import ActionChains, Keys

    reached = []
    for _ in range(25):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        element = page.driver.switch_to.active_element
        if element.tag_name == "body":  # after the last one
            break
        name = (
            element.get_attribute("id")
            or element.get_attribute("name")
            or element.get_attribute("class")
            or element.tag_name
        )
        reached.append(name)
        if element.get_attribute("type") != "radio":
            outline = element.value_of_css_property("outline-style")
            assert outline == "solid", name
    assert reached[0] == "skip"
    wanted = ["theme", "loss", "divergence", "model", "download", "radius", "wide"]
    places = [reached.index(name) for name in wanted]
    assert places == sorted(places)


def test_downloads_hold_the_numbers(page, report, tmp_path):
    from selenium.webdriver.support.ui import WebDriverWait

    page.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    for name in TABLES:
        button = page.find(f"button[data-table={name}]")
        page.js("arguments[0].click()", button)
        path = tmp_path / f"{name}.csv"
        WebDriverWait(page.driver, 90, 0.05).until(lambda _, path=path: path.exists())
        frame = getattr(report, name)
        found = pd.read_csv(StringIO(path.read_text(encoding="utf-8")), keep_default_na=False)
        assert list(found.columns) == list(frame.columns)
        for column in frame.select_dtypes("number"):
            values = pd.to_numeric(found[column])
            np.testing.assert_allclose(values, finite(frame[column]), rtol=1e-12)
    groups = pd.read_csv(tmp_path / "groups.csv")
    assert BREAK in set(groups["group"])
    assert f"'{FORMULA}" in set(groups["group"])  # not run by spreadsheets
    assert set(groups["model"]) == set(report.groups["model"])


@pytest.mark.parametrize(
    ("arguments", "reading"),
    [
        ({"losses": [0.3]}, "losses: 0.3 (no interval)"),
        ({"losses": [0.3, 0.5], "rhos": [np.inf]}, "All weight is on the largest loss."),
        ({"losses": [0.3, 0.5, 0.9], "rhos": [0.0]}, "Radius ρ = 0: no shift"),
        ({"losses": [0.3, 0.5, 0.9], "divergence": "reverse-kl"}, "Radius ρ = 0.693."),
        ({"losses": [1e100, 2e100], "divergence": "kl"}, "Radius ρ = 0.693: the ball holds"),
    ],
)
def test_unusual_reports_render(driver, tmp_path, arguments, reading):
    path = tmp_path / "report.html"
    report = stress_test(**arguments, random_state=0)
    report.to_html(path)
    page = Page(driver, path, f"given {report.divergences[0]}")
    assert reading in page.reading()
    assert driver.get_log("browser") == []


def contrast(one, other):
    """The ratio of the luminances of two colours, as WCAG defines it."""

    def luminance(colour):
        values = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("by", ["system", "choice"])
def test_light_and_dark_have_enough_contrast(page, theme, by):
    system = theme if by == "system" else {"light": "dark", "dark": "light"}[theme]
    feature = {"name": "prefers-color-scheme", "value": system}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    if by == "choice":
        page.js(f"document.querySelector('input[value={theme}]').click()")
    names = ("--ink", "--soft", "--accent", "--card", "--page")
    found = page.js(
        "const style = getComputedStyle(document.documentElement);"
        "return arguments[0].map(name => style.getPropertyValue(name).trim())", names,
    )  # fmt: skip
    ink, soft, accent, card, ground = (each if len(each) == 7 else "#ffffff" for each in found)
    assert (contrast(card, "#ffffff") < 1.1) == (theme == "light")
    for text in (ink, soft, accent):
        assert contrast(text, card) >= 4.5
        assert contrast(text, ground) >= 4.5
    for colour in COLOURS if theme == "light" else DARK_COLOURS:
        assert contrast(colour, card) >= 3.0
    # Paper is white, whatever the theme of the screen.
    page.driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"media": "print", "features": [feature]}
    )
    paper = page.js("return getComputedStyle(document.body).backgroundColor")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert paper == "rgb(255, 255, 255)"


def test_it_fits_a_phone(driver, file):
    size = {"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page = Page(driver, file)
    wide = page.js("return document.documentElement.scrollWidth")
    chart = page.js(
        "return document.querySelector('#chart-curve svg').getBoundingClientRect().width"
    )
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide <= 390
    assert 250 <= chart <= 390
