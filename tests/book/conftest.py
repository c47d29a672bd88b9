"""A book of one small chapter with a formula, a figure, a table, a solution and the widget; and a browser."""

import os
import shutil
from pathlib import Path

import pytest

for module in ("nbclient", "jupytext", "nbval", "anywidget", "sphinx", "myst_nb"):
    pytest.importorskip(module, reason="the book's tools are not installed: pip install -e '.[book]'")

from llmlab.book import run, toc  # noqa: E402  (after the check that their tools are there)

CHROMIUM_FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

BOOK = """
title = "A small book"
subtitle = "for tests"
[[part]]
title = "Part"
[[part.chapter]]
file = "03-small"
title = "Small"
minutes = 5
prerequisites = ["NumPy"]
gpu = "never"
seconds = 120
"""

CHAPTER = """---
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
---

# Small

*5 minutes · for readers who know NumPy · no GPU needed*

$$x = \\frac{a}{b}$$

```{code-cell} ipython3
import matplotlib.pyplot as plt

from llmlab.book.chapter import check, figure, show, table
from llmlab.ops import gelu
from llmlab.widgets import LayerNormWidget

cat, ls = 4, "# %%"
print(cat)
print(ls)
```

```{code-cell} ipython3
table(["op", "bytes"], [["gelu", 4096]])
show(gelu.forward)
```

```{code-cell} ipython3
ax = figure()
ax.plot([1, 2])
plt.show()
```

```{code-cell} ipython3
:tags: [solution, hide-input]

def double(x):
    return 2 * x

check(double, lambda x: x + x, {"three": [3.0]})
```

```{code-cell} ipython3
LayerNormWidget()
```
"""


def write_small_book(root: Path) -> toc.Book:
    (root / "chapters").mkdir(parents=True)
    shutil.copy(Path(__file__).parents[2] / "jupytext.toml", root)
    (root / "book.toml").write_text(BOOK, encoding="utf-8")
    (root / "chapters" / "index.md").write_text("# Index\n", encoding="utf-8")
    (root / "chapters" / "03-small.md").write_text(CHAPTER, encoding="utf-8")
    return toc.read(root)


@pytest.fixture(scope="session")
def executed(tmp_path_factory) -> toc.Book:
    """The small book, executed. Do not change its files: copy them (`copied`)."""
    book = write_small_book(tmp_path_factory.mktemp("book"))
    run.run(book.chapters[0])
    return book


@pytest.fixture
def copied(executed, tmp_path) -> toc.Book:
    """A copy of the executed book, to be changed."""
    for path in [executed.root / "book.toml", executed.root / "jupytext.toml", *executed.folder.iterdir()]:
        target = tmp_path / path.relative_to(executed.root)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    return toc.read(tmp_path)


@pytest.fixture(scope="session", autouse=True)
def jupyter_folders(tmp_path_factory):
    """Jupyter writes its run-time files under a temporary home, not the reader's."""
    home = tmp_path_factory.mktemp("jupyter")
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: str(home / name.lower()) for name in names})
    yield
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def browser_page(tmp_path):
    """`browser_page(address, scheme="light")` opens a page in Chromium that logs what goes wrong.

    `page.foreign` lists requests that leave `address`; `page.problems` those, and every error on the console.
    """
    api = pytest.importorskip("playwright.sync_api", reason="needs pip install -e '.[test]'")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with api.sync_playwright() as playwright:
        contexts = []

        def open_page(address: str, scheme: str = "light"):
            context = playwright.chromium.launch_persistent_context(
                str(tmp_path / f"profile-{len(contexts)}"),
                executable_path=chromium,
                args=CHROMIUM_FLAGS,
                color_scheme=scheme,
                viewport={"width": 1280, "height": 1000},
            )
            contexts.append(context)
            page = context.pages[0]
            page.set_default_timeout(60_000)
            page.foreign, page.problems = [], []
            local = (address, "data:", "blob:", address.replace("http:", "ws:"))

            def on_request(request):
                if not request.url.startswith(local):
                    page.foreign.append(request.url)
                    page.problems.append(f"request to {request.url}")

            page.on("request", on_request)
            page.on("requestfailed", lambda request: page.problems.append(f"failed: {request.url}"))
            page.on("pageerror", lambda error: page.problems.append(str(error)))
            page.on("console", lambda m: page.problems.append(m.text) if m.type == "error" else None)
            return page

        yield open_page
        for context in contexts:
            context.close()
