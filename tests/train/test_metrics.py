from llmlab.train import metrics


def test_a_file_goes_back_to_where_a_state_left_it(tmp_path):
    path = tmp_path / "m.jsonl"
    with metrics.Metrics(path) as first:
        first.write(step=1, loss=2.5)
        kept = first.sync()
        first.write(step=2, loss=2.0)
    with metrics.Metrics(path, kept) as again:
        again.write(step=2, loss=1.5)
    assert metrics.read(path) == [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 1.5}]


def test_a_file_that_was_lost_begins_anew(tmp_path):
    with metrics.Metrics(tmp_path / "m.jsonl", 1000) as file:
        file.write(step=3)
    assert metrics.read(tmp_path / "m.jsonl") == [{"step": 3}]


def test_a_line_cut_short_is_left_out(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"step": 1}\n{"ste')
    assert metrics.read(tmp_path / "m.jsonl") == [{"step": 1}]


def test_the_picture_shows_training_held_out_and_baselines(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    drawn = {}

    def look(figure, path):
        axes = figure.axes[0]
        drawn["lines"] = len(axes.lines)
        drawn["labels"] = [t.get_text() for t in axes.texts] + [t.get_text() for t in axes.get_legend().texts]
        save(figure, path)

    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", look)
    records = [{"step": s, "loss": 5 / s} for s in range(1, 9)] + [{"step": 8, "held_out": 1.25}]
    metrics.draw_loss(tmp_path / "loss.png", records, {"bigram": 2.314}, "a title")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert drawn["lines"] == 4
    assert drawn["labels"] == ["bigram 2.31", "training (smoothed)", "held out: 1.250 at the end"]


def test_a_run_without_steps_can_be_drawn(tmp_path):
    metrics.draw_loss(tmp_path / "loss.png", [], {"bigram": 2.3}, "")
