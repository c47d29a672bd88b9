"""The widgets saved in a notebook: their models, in one order, and the rule that every one runs by itself."""

import re

import nbformat

STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"
REFERENCE = re.compile(r"IPY_MODEL_([0-9a-f]{32})")


def models(notebook: nbformat.NotebookNode) -> dict:
    """The saved models by id."""
    return notebook.metadata.get("widgets", {}).get(STATE, {}).get("state", {})


def views(notebook: nbformat.NotebookNode) -> list[dict]:
    """The widget outputs of the notebook, in reading order."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return [output.data[VIEW] for output in outputs if VIEW in output.get("data", {})]


def renumber(notebook: nbformat.NotebookNode) -> None:
    """Replace the random model ids by 0, 1, 2... as the models appear; drop models that no output shows."""
    state = models(notebook)
    order: dict[str, str] = {}

    def visit(model: str) -> None:
        if model in state and model not in order:
            order[model] = f"{len(order):032x}"
            for reference in REFERENCE.findall(str(state[model]["state"])):
                visit(reference)

    for view in views(notebook):
        visit(view["model_id"])
        view["model_id"] = order[view["model_id"]]
    if not order:
        notebook.metadata.pop("widgets", None)
        return
    rename = lambda match: f"IPY_MODEL_{order[match[1]]}"  # noqa: E731  (the only use, two lines below)
    for model in order:
        values = state[model]["state"]
        values.update({k: REFERENCE.sub(rename, v) for k, v in values.items() if isinstance(v, str)})
    notebook.metadata["widgets"][STATE]["state"] = {new: state[old] for old, new in order.items()}


def problems(notebook: nbformat.NotebookNode) -> list[str]:
    """What keeps a saved widget from working on a page without a kernel, or from being the shipped one."""
    from llmlab import widgets

    found = []
    state = models(notebook)
    for view in views(notebook):
        values = state.get(view["model_id"], {}).get("state", {})
        name = values.get("_anywidget_id", values.get("_model_name", "an unsaved widget"))
        shipped = widgets.by_id().get(name)
        if shipped is None:
            found.append(
                f"shows {name}, which is not one of llmlab.widgets; it would be dead on the static page"
            )
        elif values["_esm"] != shipped._esm:
            found.append(f"holds an older JavaScript of {shipped.__name__}; run `llmlab book run`")
    return found
