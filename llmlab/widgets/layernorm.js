import { axis, bars, chart, element, shape, signed, slider } from "./common.js";

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// Forward and backward of one row, as llmlab/ops/layernorm.py; `gradient` is g = dy * weight.
export function layernorm(x, gradient, eps) {
  const mu = mean(x);
  const rstd = 1 / Math.sqrt(mean(x.map((v) => (v - mu) ** 2)) + eps);
  const xhat = x.map((v) => (v - mu) * rstd);
  const g_mean = mean(gradient);
  const g_xhat = mean(gradient.map((g, i) => g * xhat[i]));
  const along_xhat = xhat.map((v) => v * g_xhat);
  const dx = gradient.map((g, i) => rstd * (g - g_mean - along_xhat[i]));
  return { mean: mu, rstd, xhat, along_mean: x.map(() => g_mean), along_xhat, dx };
}

function draw(model, charts, numbers) {
  const [offset, scale, gradient] = ["offset", "scale", "gradient"].map((name) => model.get(name));
  const x = model.get("row").map((v) => offset + scale * v);
  const result = layernorm(x, gradient, model.get("eps"));
  const width = Math.min(22, 200 / x.length);

  const [row, normalised, terms, dx] = charts;
  axis(row, `the row x: mean ${signed(result.mean, 2)}, deviation ${signed(1 / result.rstd, 2)}`);
  const [top, bottom] = [row.y(result.mean + 1 / result.rstd), row.y(result.mean - 1 / result.rstd)];
  shape(row.svg, "rect", { x: 34, width: 300, y: top, height: bottom - top, class: "band" });
  bars(row, x, "blue", { from: result.mean, width });
  shape(row.svg, "line", { x1: 34, x2: 334, y1: row.y(result.mean), y2: row.y(result.mean), class: "blue" });

  axis(normalised, "the normalised row");
  bars(normalised, result.xhat, "blue", { width });

  axis(terms, "the gradient g as circles, its part along the mean and its part along x-hat as bars");
  bars(terms, result.along_mean, "vermilion", { width: width / 2, shift: -width / 4 });
  bars(terms, result.along_xhat, "green", { width: width / 2, shift: width / 4 });
  gradient.forEach((g, i) => shape(terms.svg, "circle", { cx: terms.x(i, x.length), cy: terms.y(g), r: 4 }));

  axis(dx, "the gradient dx of the row");
  bars(dx, result.dx, "blue", { width });

  const along = result.dx.map((v, i) => v * result.xhat[i]);
  numbers.replaceChildren();
  for (const [name, value] of [
    ["mean", result.mean],
    ["rstd", result.rstd],
    ["mean(dx)", mean(result.dx)],
    ["mean(dx · x̂)", mean(along)],
  ])
    element(numbers, "span", {}, `${name} = ${signed(value, 3)}`);
}

function render({ model, el }) {
  const root = element(el, "div", { class: "llmlab-widget" });
  const controls = element(root, "div");
  const grid = element(root, "div", { class: "llmlab-charts" });
  const charts = [
    chart(grid, "<span><b>x</b> = offset + scale · row, its mean ± one deviation</span>", 6),
    chart(grid, "<span><b>x̂</b> = (x − mean) · rstd</span>", 2),
    chart(
      grid,
      "<span><b>g</b> ○, and what backward takes out of it: " +
        "<b class='vermilion'>▯ mean(g)</b> and <b class='green'>▮ x̂ · mean(g · x̂)</b></span>",
      2,
    ),
    chart(grid, "<span><b>dx</b> = rstd · (g − mean(g) − x̂ · mean(g · x̂))</span>", 2),
  ];
  const numbers = element(root, "p", { class: "llmlab-numbers" });
  const redraw = () => draw(model, charts, numbers);
  const stop = [
    slider(controls, model, "offset", { label: "offset", min: -2, max: 2, step: 0.05 }, redraw),
    slider(controls, model, "scale", { label: "scale", min: 0.4, max: 2, step: 0.05 }, redraw),
  ];
  return () => stop.forEach((end) => end());
}

export default { render };
