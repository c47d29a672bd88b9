"""JupyterLab in Chromium: a chapter opens, all its cells run, the slider changes the picture."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request

import pytest

from llmlab.book import lab, run

TOKEN = "for-this-test"


@pytest.fixture
def address(copied):
    """A JupyterLab on the small book, as `llmlab lab` starts it; its chapter's two files are years apart."""
    os.utime(copied.chapters[0].source, (1, 1))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--no-browser", f"--ServerApp.port={port}", f"--IdentityProvider.token={TOKEN}"]
    options += ["--ServerApp.allow_root=True", "--expose-app-in-browser"]
    command = lab.command(copied, copied.chapters[0], options)
    base = f"http://127.0.0.1:{port}"
    with (copied.root / "lab.log").open("w") as log:
        server = subprocess.Popen(
            command,
            env=run.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_until_ready(base, server, copied.root / "lab.log")
            yield base
        finally:
            os.killpg(server.pid, signal.SIGKILL)  # its kernels too; an orderly end takes long
            server.wait()


def wait_until_ready(base, server, log):
    for _ in range(240):
        try:
            urllib.request.urlopen(f"{base}/api?token={TOKEN}", timeout=5).close()
            return
        except OSError:
            assert server.poll() is None, log.read_text()
            time.sleep(0.25)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text()}")


@pytest.mark.browser
def test_a_chapter_runs_in_jupyterlab_and_its_slider_moves(address, browser_page):
    page = browser_page(address)
    page.goto(f"{address}/lab/tree/chapters/03-small.ipynb?token={TOKEN}")
    page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell", timeout=60_000)
    page.wait_for_function("window.jupyterapp?.shell.currentWidget?.context?.isReady", timeout=60_000)
    page.evaluate("jupyterapp.shell.currentWidget.sessionContext.ready")
    page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")

    # The last cell shows the widget; when it is there, every cell before it has run.
    widget = page.locator(".jp-OutputArea .llmlab-widget")
    widget.wait_for(timeout=60_000)
    cells = page.evaluate("jupyterapp.shell.currentWidget.model.sharedModel.toJSON().cells")
    cells = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert "error" not in kinds
    assert '"stderr"' not in json.dumps(cells)

    before = widget.locator("svg").first.inner_html()
    widget.locator('input[data-name="offset"]').press("ArrowRight")
    page.wait_for_function(
        "before => document.querySelector('.llmlab-widget svg').innerHTML !== before", arg=before
    )
    assert "mean = 0.050" in widget.inner_text()
    assert page.locator("mjx-container, .MathJax, .katex").count() > 0, "the formula is typeset"
    assert page.foreign == []


@pytest.mark.browser
def test_the_source_opens_as_a_notebook_and_no_news_pops_up(address, browser_page):
    page = browser_page(address)
    page.goto(f"{address}/lab/tree/chapters/03-small.md?token={TOKEN}")
    page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell", timeout=60_000)
    assert page.locator(".Toastify__toast").count() == 0
    assert page.foreign == []


def test_the_command_line_names_our_settings(executed):
    command = lab.command(executed, executed.chapters[0], ["--no-browser"])
    settings = json.loads((lab.SETTINGS / "overrides.json").read_text(encoding="utf-8"))
    assert f"--LabApp.app_settings_dir={lab.SETTINGS}" in command
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert os.path.isdir(lab.SETTINGS)
