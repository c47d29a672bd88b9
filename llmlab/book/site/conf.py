"""Sphinx's configuration of the book, made of `book.toml`; `llmlab book build` runs it with `chapters/` as the source."""

import os
from importlib.metadata import files
from pathlib import Path

from llmlab.book import toc

book = toc.read(Path(os.environ["LLMLAB_BOOK_ROOT"]))

project = book.title
author = "The llmlab authors"
copyright = "the llmlab authors, MIT licence"
html_title = book.title
root_doc = "index"

# Only what book.toml lists: whatever else lies in the folder stays out.
include_patterns = ["index.md", *(chapter.notebook.name for chapter in book.chapters)]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}

extensions = ["myst_nb"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the notebooks are executed; `llmlab book check` proves that they are current
nb_merge_streams = True
nb_render_markdown_format = "myst"
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"

# Everything that a page loads comes from the site itself, and works from a folder of files as well.
nb_ipywidgets_js = {}
mathjax_path = "tex-svg.js"
mathjax_folder = next(f for f in files("sphinx-mathjax-offline") if f.name == "tex-svg.js").locate().parent
html_static_path = [str(Path(__file__).parent / name) for name in ("widgets.js", "book.css")]
html_static_path.append(str(mathjax_folder / "tex-svg.js"))
html_js_files = ["widgets.js"]
html_css_files = ["book.css"]

html_theme = "sphinx_book_theme"
html_theme_options = {
    "show_toc_level": 2,
    "show_navbar_depth": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "home_page_in_toc": True,
    "navbar_persistent": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}  # light or dark as the reader's system is
html_copy_source = False
html_show_sourcelink = False


def contents() -> str:
    """The toctrees of the index page, one per part."""
    trees = []
    for part in book.parts:
        names = "\n".join(chapter.file for chapter in part.chapters)
        trees.append(f"```{{toctree}}\n:caption: {part.title}\n:maxdepth: 1\n\n{names}\n```\n")
    return "\n".join(trees)


def add_contents(app, name: str, source: list[str]) -> None:
    if name == "index":
        source[0] += "\n" + contents()


def setup(app) -> None:
    app.connect("source-read", add_contents)
