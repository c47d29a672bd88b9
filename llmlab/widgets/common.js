// What every widget draws with: elements, sliders, and small charts of one number per channel.

const SVG = "http://www.w3.org/2000/svg";

export function element(parent, tag, attributes = {}, text = "") {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  parent.append(node);
  return node;
}

export function shape(parent, tag, attributes = {}, text = "") {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  parent.append(node);
  return node;
}

// A labelled slider bound to one number of the model, both ways. Returns a function that takes the binding away.
export function slider(parent, model, name, { label, min, max, step }, changed) {
  const row = element(parent, "label", { class: "llmlab-slider" });
  element(row, "span", {}, label);
  const input = element(row, "input", { type: "range", min, max, step, "data-name": name });
  input.setAttribute("data-lm-suppress-shortcuts", "true"); // else JupyterLab takes the arrow keys for its own
  const number = element(row, "output");
  const show = () => {
    input.value = model.get(name);
    number.textContent = signed(model.get(name), 2);
    changed();
  };
  input.addEventListener("input", () => {
    model.set(name, input.valueAsNumber);
    model.save_changes();
  });
  model.on(`change:${name}`, show);
  show();
  return () => model.off(`change:${name}`, show);
}

// A number with a real minus sign, and never "-0".
export function signed(value, digits) {
  const text = Math.abs(value).toFixed(digits);
  return (value < 0 && Number(text) !== 0 ? "\u2212" : "") + text;
}

// A panel with a title and an empty chart whose vertical axis runs from -reach to reach.
export function chart(parent, title, reach) {
  const figure = element(parent, "figure", { class: "llmlab-chart" });
  const caption = element(figure, "figcaption");
  caption.innerHTML = title;
  const svg = shape(figure, "svg", { viewBox: "0 0 340 150", role: "img" });
  const y = (value) => 75 - (68 * Math.max(-reach, Math.min(reach, value))) / reach;
  const x = (index, count) => 34 + ((index + 0.5) * 300) / count;
  return { svg, x, y, reach, caption };
}

// Clear the chart and draw its axis.
export function axis({ svg, y, reach }, description) {
  svg.replaceChildren();
  svg.setAttribute("aria-label", description);
  for (const value of [-reach, 0, reach]) {
    shape(svg, "line", { x1: 34, x2: 334, y1: y(value), y2: y(value), class: value ? "grid" : "zero" });
    shape(svg, "text", { x: 28, y: y(value) + 4, "text-anchor": "end" }, signed(value, 0));
  }
}

// One bar per channel, from `from` (default 0) to its value; `shift` in pixels sets two series side by side.
export function bars({ svg, x, y }, values, series, { from = 0, width = 14, shift = 0 } = {}) {
  values.forEach((value, index) => {
    const [top, bottom] = [y(Math.max(value, from)), y(Math.min(value, from))];
    const attributes = { y: top, height: Math.max(bottom - top, 0.75), width, class: series };
    shape(svg, "rect", { x: x(index, values.length) - width / 2 + shift, ...attributes });
  });
}
