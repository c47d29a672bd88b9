"""The built pages in Chromium: formulas typeset, widgets that move, and not one request to another host."""

import contextlib
import functools
import http.server
import re
import threading
from pathlib import Path

import pytest

from llmlab.book import build, toc
from llmlab.errors import UserError


@pytest.fixture(scope="module")
def small_site(executed, tmp_path_factory) -> Path:
    return build.build(executed, tmp_path_factory.mktemp("site") / "small").parent


@pytest.fixture(scope="module")
def real_site(tmp_path_factory) -> Path:
    """The real book's site."""
    book = toc.read(Path(__file__).parents[2])
    return build.build(book, tmp_path_factory.mktemp("site") / "real").parent


@contextlib.contextmanager
def served(folder: Path, how: str):
    """The address of `folder`: from a local server ("http"), or as a folder of files ("file")."""
    if how == "file":
        yield folder.as_uri()
        return

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            return

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_warning_stops_the_build(copied, tmp_path, capsys):
    (copied.folder / "index.md").write_text("# Index\n\n[nowhere](nowhere.ipynb)\n", encoding="utf-8")
    with pytest.raises(UserError, match="Sphinx had warnings"):
        build.build(copied, tmp_path / "out")
    assert "nowhere" in capsys.readouterr().err


def test_an_untrue_chapter_stops_the_build(copied, tmp_path):
    text = copied.chapters[0].source.read_text(encoding="utf-8")
    copied.chapters[0].source.write_text(text.replace("cat, ls = 4", "cat, ls = 5"), encoding="utf-8")
    with pytest.raises(UserError, match="cell 1 differs"):
        build.build(copied, tmp_path / "out")


def test_another_mathjax_stops_the_build(executed, tmp_path, monkeypatch):
    other = tmp_path / "tex-svg.js"
    other.write_text("// something else")
    monkeypatch.setattr(build.pages, "mathjax", lambda: other)
    with pytest.raises(UserError, match=r"is not that of MathJax 3\.2\.2"):
        build.build(executed, tmp_path / "out")


def test_no_page_names_another_host_to_load_from(small_site):
    loads = re.compile(r"""<(?:script|link|img|iframe)[^>]*?(?:src|href)=["'](https?:)?//""")
    pages = list(small_site.glob("*.html"))
    assert pages
    assert [page.name for page in pages if loads.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.browser
@pytest.mark.parametrize("how", ["http", "file"])
def test_the_widget_moves_without_a_kernel(small_site, browser_page, how):
    with served(small_site, how) as address:
        page = browser_page(address)
        page.goto(f"{address}/03-small.html")
        page.wait_for_selector("mjx-container svg")
        widget = page.locator(".llmlab-widget")
        charts = widget.locator("svg")
        before = [chart.inner_html() for chart in charts.all()]
        assert all("<rect" in picture for picture in before)
        widget.locator('input[data-name="offset"]').press("ArrowRight")
        after = [chart.inner_html() for chart in charts.all()]
        assert after[0] != before[0], "the row moves with its offset"
        assert after[2] == before[2], "the two terms do not"
        assert "mean = 0.050" in widget.inner_text()
        widget.locator('input[data-name="scale"]').press("End")
        assert charts.nth(3).inner_html() != before[3], "dx shrinks with the scale"
        assert page.problems == []


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_widget_is_legible(small_site, browser_page, scheme):
    """Text and bars stand off the page by WCAG's ratios: 4.5 for text, 3 for shapes."""
    page = browser_page("file:", scheme)
    page.goto(f"{small_site.as_uri()}/03-small.html")
    page.wait_for_selector(".llmlab-widget rect.green")
    paper = colour(page, "body", "backgroundColor")
    assert contrast(colour(page, ".llmlab-widget", "color"), paper) >= 4.5
    assert contrast(colour(page, ".llmlab-widget svg text", "fill"), paper) >= 4.5
    for shape, style in [("rect.blue", "fill"), ("rect.green", "fill"), ("rect.vermilion", "stroke")]:
        assert contrast(colour(page, f".llmlab-widget {shape}", style), paper) >= 3, shape


@pytest.mark.browser
def test_every_page_of_the_book(real_site, browser_page):
    """Formulas are typeset, pictures are there, widgets are drawn, nothing is fetched from elsewhere."""
    page = browser_page(real_site.as_uri())
    for chapter in sorted(real_site.glob("[0-9][0-9]-*.html")):
        page.goto(chapter.as_uri())
        text = chapter.read_text(encoding="utf-8")
        if 'class="math' in text:
            page.wait_for_selector("mjx-container svg")
        page.wait_for_function("!window.MathJax?.startup || MathJax.startup.promise.then(() => true)")
        assert page.locator("[data-mjx-error], mjx-merror").count() == 0, chapter.name
        broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"
        assert page.evaluate(broken) == []
        widgets = text.count('type="application/vnd.jupyter.widget-view+json"')
        page.wait_for_function(f"document.querySelectorAll('.llmlab-widget').length === {widgets}")
    assert page.problems == []


def colour(page, selector: str, style: str) -> tuple[float, ...]:
    text = page.evaluate(f"getComputedStyle(document.querySelector({selector!r})).{style}")
    return tuple(float(number) / 255 for number in re.findall(r"[\d.]+", text)[:3])


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """WCAG 2.2's contrast ratio, https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio."""

    def luminance(rgb):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
