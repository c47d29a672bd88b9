"""Figures in the book's style.

Ink on an opaque white card, so that a figure is legible wherever the notebook is opened; on a dark page of
the site its style sheet inverts the card and keeps the hues. The colours are Okabe and Ito's, told apart with
every form of colour blindness (Color Universal Design, https://jfly.uni-koeln.de/color/); lines that cross
differ in dash too. In pictures of matrices zero is the paper: "Blues" for amounts, the default, and "RdBu"
with symmetric limits for signed numbers.
"""

COLOURS = {
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "ink": "#222222",
    "grey": "#767676",
}

_CYCLE = ("blue", "vermilion", "green", "purple", "orange")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


def figure(rows: int = 1, columns: int = 1, width: float = 7.0, height: float = 3.0, **options):
    """New axes in the book's style: one `Axes`, or an array of them as `matplotlib.pyplot.subplots` gives.

    `width` and `height` are inches of the whole figure; `options` go to `subplots`. End with `plt.show()`.
    """
    import matplotlib.pyplot as plt
    from cycler import cycler

    plt.rcParams.update(_style())
    colours = [COLOURS[name] for name in _CYCLE]
    plt.rcParams["axes.prop_cycle"] = cycler(color=colours) + cycler(linestyle=_DASHES)
    _, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", **options)
    return axes


def _style() -> dict[str, object]:
    ink, grey = COLOURS["ink"], COLOURS["grey"]
    return {
        "figure.dpi": 144,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "savefig.bbox": "standard",
        "font.size": 9.5,
        "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture on every machine
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.labelcolor": ink,
        "axes.edgecolor": grey,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": False,
        "grid.color": "#DDDDDD",
        "xtick.color": grey,
        "ytick.color": grey,
        "xtick.labelcolor": ink,
        "ytick.labelcolor": ink,
        "text.color": ink,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "image.cmap": "Blues",
        "image.interpolation": "nearest",
    }
