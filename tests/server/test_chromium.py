"""The pages in a real Chromium, from a real server: laid out, legible, usable by keyboard, with
and without scripts. Its screenshots are kept in the folder that ``NPUMARK_SCREENSHOTS`` names."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from npumark.server.app import create_app
from npumark.server.store import Store
from tests import forge
from tests.server import populated
from tests.server.conftest import config_of
from tests.server.populated import Shown

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
PATIENCE_MS = 30_000
"""After which a test gives up; nothing is asserted about it."""

WIDE, PHONE, NARROW = (1200, 800), (360, 740), (320, 640)


@dataclass
class Browser:
    """A browser beside a server. ``complaints`` is what its pages wrote to the console."""

    chromium: Any
    site: str
    shown: Shown
    pictures: Path
    complaints: list[str] = field(default_factory=list)
    _contexts: list[Any] = field(default_factory=list)

    def page(
        self, size: tuple[int, int] = WIDE, *, dark: bool = False, scripts: bool = True
    ) -> Any:
        context = self.chromium.new_context(
            base_url=self.site,
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            reduced_motion="reduce",
        )
        self._contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda said: self.complaints.append(f"{page.url}: {said.text}"))
        page.on("pageerror", lambda fault: self.complaints.append(f"{page.url}: {fault}"))
        return page

    def close_pages(self) -> None:
        for context in self._contexts:
            context.close()
        self._contexts.clear()
        self.complaints.clear()

    def every(self) -> dict[str, str]:
        shown = self.shown
        return {
            "board": "/",
            "unranked": "/?all=1",
            "filtered": "/?role=CPU&format=INT8&sort=delivered",
            "nothing": "/?q=nothing-of-that-name",
            "result": f"/results/{shown.cards}",
            "nasty": f"/results/{shown.nasty}",
            "processors": "/processors",
            "processor": "/processors/cpu-amd-ryzen-9-7950x",
            "compare": f"/compare?id={shown.cards}&id={shown.cpu}&id={shown.quick}",
            "methodology": "/methodology",
        }


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    place = tmp_path_factory.mktemp("chromium")
    pictures = Path(os.environ.get("NPUMARK_SCREENSHOTS") or place / "screenshots")
    pictures.mkdir(parents=True, exist_ok=True)
    store = Store(config_of(f"sqlite:///{place / 'server.sqlite'}"), now=forge.NOW.timestamp)
    store.open()
    store.migrate()
    shown = populated.populate(store)
    app = create_app(store.config, store, now=forge.NOW.timestamp)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        with sync_api.sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            site = f"http://127.0.0.1:{listening.getsockname()[1]}"
            yield Browser(chromium, site, shown, pictures)
            chromium.close()
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
        store.close()


@pytest.fixture
def browser(opened: Browser) -> Iterator[Browser]:
    yield opened
    opened.close_pages()


TOO_WIDE = """
[...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !e.closest('.scroll, .skip, svg');
}).map(e => e.outerHTML.slice(0, 120))
"""

FAINT = """
(() => {
  const light = c => {
    const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const [r, g, b] = c.map(v => linear(v / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = text => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = rgba(getComputedStyle(e).backgroundColor);
      if (c[3] > 250) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    if (e.closest('svg, option, .hidden, [hidden], .skip') || !e.checkVisibility()) continue;
    const a = light(rgba(getComputedStyle(e).color).slice(0, 3)), b = light(behind(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < LEAST) found.push([ratio.toFixed(2), e.outerHTML.slice(0, 100)]);
  }
  return found;
})()
"""


@pytest.mark.parametrize("look", ["light", "dark", "phone", "narrow"])
def test_every_page_is_laid_out_legible_and_without_complaints(browser: Browser, look: str) -> None:
    page = browser.page({"phone": PHONE, "narrow": NARROW}.get(look, WIDE), dark=look == "dark")
    for name, address in browser.every().items():
        page.goto(address)
        if look != "narrow":
            page.screenshot(path=browser.pictures / f"{name}-{look}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
            name,
            page.evaluate(TOO_WIDE),
        )
        assert page.evaluate(FAINT.replace("LEAST", "4.5")) == [], name
    assert browser.complaints == []


def test_faint_text_and_a_wide_page_would_show(browser: Browser) -> None:
    page = browser.page()
    page.goto("/")
    page.evaluate("document.querySelector('h1').style.color = '#ccc'")
    page.evaluate("document.querySelector('h1').style.width = '3000px'")
    assert len(page.evaluate(FAINT.replace("LEAST", "4.5"))) == 1
    assert not page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_script_in_a_page_would_not_run_and_show(browser: Browser) -> None:
    page = browser.page()
    page.goto("/")
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'),"
        " {textContent: 'window.ran = true'}))"
    )
    assert page.evaluate("window.ran") is None
    assert any("Content Security Policy" in said for said in browser.complaints)


def test_a_choice_takes_effect_at_once_and_leaves_a_clean_address(browser: Browser) -> None:
    page = browser.page()
    page.goto("/")
    with page.expect_navigation():
        page.get_by_label("Role").select_option("NPU")
    assert page.url == f"{browser.site}/?role=NPU"
    assert page.locator("tbody tr").count() == 1
    assert page.get_by_label("Role").input_value() == "NPU"


def test_results_are_marked_and_compared(browser: Browser) -> None:
    page = browser.page()
    page.goto("/")
    boxes = page.locator("input[name=id]")
    button = page.get_by_role("button", name="Compare")
    boxes.nth(0).check()
    assert button.is_disabled()
    for n in range(1, 4):
        boxes.nth(n).check()
    assert boxes.nth(4).is_disabled()
    assert page.get_by_text("4 results marked.").is_visible()
    assert page.locator("[data-picked]").bounding_box()["y"] < page.viewport_size["height"]
    page.screenshot(path=browser.pictures / "marked-light.png")
    with page.expect_navigation():
        button.click()
    assert page.get_by_role("heading", name="Compare results").is_visible()
    assert page.locator(".sides li").count() == 4


def test_all_of_it_works_without_scripts(browser: Browser) -> None:
    page = browser.page(scripts=False)
    page.goto("/")
    page.get_by_label("Format").select_option("INT8")
    page.get_by_role("button", name="Show").click()
    assert "format=INT8" in page.url
    boxes = page.locator("input[name=id]")
    boxes.nth(0).check()
    boxes.nth(1).check()
    page.get_by_role("button", name="Compare").click()
    assert page.locator(".sides li").count() == 2
    page.goto("/")
    page.get_by_role("link", name="NVIDIA GeForce RTX 4090").click()
    assert page.locator("h1 .tops").inner_text().startswith("95.3")
    page.locator("details summary").first.click()
    assert page.locator("details").first.get_attribute("open") is not None


def test_the_keyboard_reaches_the_filter_and_the_content(browser: Browser) -> None:
    page = browser.page()
    page.goto("/")
    reached = []
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")
        )
    assert reached[0] == "Skip to the content"
    wanted = ["f-q", "f-role", "f-runtime", "f-format", "f-os"]
    assert [name for name in reached if name in wanted] == wanted
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) != "none"
    page.goto("/")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_no_text_of_a_record_becomes_part_of_a_page(browser: Browser) -> None:
    page = browser.page()
    page.goto(f"/results/{browser.shown.nasty}")
    assert page.locator("main b").count() == 0
    assert populated.NASTY.split("\n")[0][:22] in page.locator("h1").inner_text()


def test_a_page_prints_without_what_is_only_to_be_clicked(browser: Browser) -> None:
    page = browser.page()
    page.goto("/")
    page.emulate_media(media="print")
    assert not page.locator("form.filter").is_visible()
    assert page.locator("table.board").is_visible()
