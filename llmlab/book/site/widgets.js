// Brings the widgets of a page to life without a kernel: each saved anywidget gets a model made of its saved numbers,
// and its own JavaScript draws and computes. This takes the place of Jupyter's widget manager, which would be 5 MB.

class Model {
  constructor(state) {
    this.state = state;
    this.listeners = {};
  }
  get(name) {
    return this.state[name];
  }
  set(name, value) {
    if (this.state[name] === value) return;
    this.state[name] = value;
    for (const listener of this.listeners[`change:${name}`] ?? []) listener();
  }
  on(event, listener) {
    (this.listeners[event] ??= new Set()).add(listener);
  }
  off(event, listener) {
    this.listeners[event]?.delete(listener);
  }
  save_changes() {}
}

async function load(code) {
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  try {
    return (await import(address)).default;
  } finally {
    URL.revokeObjectURL(address);
  }
}

document.addEventListener("DOMContentLoaded", async () => {
  const saved = document.querySelector('script[type="application/vnd.jupyter.widget-state+json"]');
  if (!saved) return;
  const states = JSON.parse(saved.textContent).state;
  const models = {};
  for (const view of document.querySelectorAll('script[type="application/vnd.jupyter.widget-view+json"]')) {
    const id = JSON.parse(view.textContent).model_id;
    const { _esm, _css, ...state } = states[id].state;
    models[id] ??= new Model(state);
    const place = document.createElement("div");
    view.after(place);
    if (_css) place.appendChild(document.createElement("style")).textContent = _css;
    const el = place.appendChild(document.createElement("div"));
    (await load(_esm)).render({ model: models[id], el });
  }
});
