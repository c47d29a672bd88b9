"""What Sphinx needs to know: its configuration, made of `book.toml`, and a small extension."""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from llmlab.book.toc import Book
from llmlab.errors import UserError

SITE = Path(__file__).parent / "site"


def configuration(book: Book) -> dict[str, object]:
    """Sphinx's configuration values; everything that a page loads comes from the site itself."""
    return {
        "project": book.title,
        "author": "The llmlab authors",
        "copyright": "the llmlab authors, MIT licence",
        "root_doc": "index",
        # Only what book.toml lists: whatever else lies in the folder stays out.
        "include_patterns": ["index.md", *(chapter.notebook.name for chapter in book.chapters)],
        "source_suffix": {".md": "myst-nb", ".ipynb": "myst-nb"},
        "extensions": ["myst_nb", "sphinx_design", __name__],
        "nitpicky": True,
        "llmlab_contents": contents(book),
        "myst_enable_extensions": ["dollarmath", "amsmath", "colon_fence"],
        "myst_heading_anchors": 3,
        "nb_execution_mode": "off",  # they are executed; `llmlab book check` proves it
        "nb_merge_streams": True,
        "nb_render_markdown_format": "myst",
        "nb_code_prompt_show": "Show the code",
        "nb_code_prompt_hide": "Hide the code",
        "nb_ipywidgets_js": {},  # widgets.js takes the place of Jupyter's widget manager
        "mathjax_path": "tex-svg.js",
        "html_static_path": [str(SITE / "widgets.js"), str(SITE / "book.css"), str(mathjax())],
        "html_js_files": ["widgets.js"],
        "html_css_files": ["book.css"],
        "html_title": book.title,
        "html_context": {"default_mode": "auto"},  # light or dark as the reader's system is
        "html_favicon": str(SITE / "favicon.svg"),
        "html_copy_source": False,
        "html_show_sourcelink": False,
        "html_theme": "sphinx_book_theme",
        "html_theme_options": {
            "show_toc_level": 2,
            "show_navbar_depth": 2,
            "use_download_button": False,
            "use_fullscreen_button": False,
            "home_page_in_toc": True,
            "navbar_persistent": [],
            "pygments_light_style": "a11y-high-contrast-light",
            "pygments_dark_style": "a11y-high-contrast-dark",
        },
    }


def mathjax() -> Path:
    """MathJax as one file that holds its fonts. Raises `UserError` if its package is missing."""
    try:
        return Path(next(f for f in files("sphinx-mathjax-offline") if f.name == "tex-svg.js").locate())
    except PackageNotFoundError:
        raise UserError("building the book needs its tools: `pip install -e '.[book]'`") from None


def contents(book: Book) -> str:
    """What the first page lists: a table per part, and the toctree that all pages show at their side."""
    text = []
    for part in book.parts:
        names = "\n".join(chapter.file for chapter in part.chapters)
        rows = [
            f"| [{chapter.title}]({chapter.file}.ipynb) | {chapter.minutes} | {book.needs(chapter)} |"
            for chapter in part.chapters
        ]
        text += [f"## {part.title}", "", "| chapter | minutes | for readers who know |", "|:---|---:|:---|"]
        text += [*rows, "", f"```{{toctree}}\n:caption: {part.title}\n:hidden:\n\n{names}\n```", ""]
    return "\n".join(text)


def setup(app) -> None:
    """Sphinx's door to an extension: append the toctrees to the first page."""

    def add_contents(app, name: str, source: list[str]) -> None:
        if name == app.config.root_doc:
            source[0] += "\n" + app.config.llmlab_contents

    app.add_config_value("llmlab_contents", "", "env", str)
    app.connect("source-read", add_contents)
