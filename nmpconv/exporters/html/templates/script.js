"use strict";
// Search marks ops by name or kind; buttons zoom the graph and choose its colours. Without a script all is readable.
const search = document.getElementById("search");
const found = document.getElementById("found");
search.addEventListener("input", () => {
  const text = search.value.trim().toLowerCase();
  let ops = 0;
  let first = null;
  for (const element of document.querySelectorAll("[data-find]")) {
    const hit = text !== "" && element.dataset.find.toLowerCase().includes(text);
    element.classList.toggle("hit", hit);
    const folded = element.closest("details");
    if (hit && folded) folded.open = true;
    if (hit && element.localName === "g") {
      ops += 1;
      first = first || element;
    }
  }
  found.textContent = text === "" ? "" : ops === 1 ? "1 op" : ops + " ops";
  if (first) show(first);
});
// Scrolls an op into the middle of the graph's frame; the first one is seen when the page opens.
function show(op) {
  const frame = op.closest(".graph");
  const box = op.getBoundingClientRect();
  const around = frame.getBoundingClientRect();
  frame.scrollTop += box.top + box.height / 2 - around.top - around.height / 2;
  frame.scrollLeft += box.left + box.width / 2 - around.left - around.width / 2;
}
search.addEventListener("keydown", (event) => {
  const first = document.querySelector("g.hit");
  if (event.key === "Enter" && first) first.closest("section").scrollIntoView();
});
// The whole graph in a corner, while its frame shows a part: what is seen is marked, and a pointer moves it.
const NS = "http://www.w3.org/2000/svg";
function minimap(frame, svg, width, height) {
  const map = document.createElementNS(NS, "svg");
  const rect = (parent, attributes) => {
    const made = parent.appendChild(document.createElementNS(NS, "rect"));
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const scale = Math.min(150 / width, 230 / height);
  const size = { width: Math.max(width * scale, 36), height: Math.max(height * scale, 36) };
  for (const [name, value] of Object.entries({ ...size, class: "minimap", "aria-hidden": "true" })) {
    map.setAttribute(name, value);
  }
  map.setAttribute("viewBox", "0 0 " + width + " " + height);
  map.setAttribute("preserveAspectRatio", "none");
  for (const op of svg.querySelectorAll("g")) {
    const box = op.querySelector("rect");
    const made = rect(map, { x: box.getAttribute("x"), y: box.getAttribute("y"), width: box.getAttribute("width"),
      height: box.getAttribute("height") });
    if (op.dataset.op) made.dataset.op = op.dataset.op;
  }
  const view = rect(map, { class: "view" });
  frame.parentNode.append(map);
  const update = () => {
    const [x, y] = [frame.scrollWidth / width, frame.scrollHeight / height];
    const whole = frame.scrollWidth <= frame.clientWidth + 1 && frame.scrollHeight <= frame.clientHeight + 1;
    map.style.display = whole ? "none" : "";
    const seen = { x: frame.scrollLeft / x, y: frame.scrollTop / y, width: frame.clientWidth / x,
      height: frame.clientHeight / y };
    for (const [name, value] of Object.entries(seen)) view.setAttribute(name, value);
  };
  const move = (event) => {
    const place = map.getBoundingClientRect();
    frame.scrollLeft = (event.clientX - place.left) / place.width * frame.scrollWidth - frame.clientWidth / 2;
    frame.scrollTop = (event.clientY - place.top) / place.height * frame.scrollHeight - frame.clientHeight / 2;
    update();
  };
  map.addEventListener("pointerdown", move);
  map.addEventListener("pointermove", (event) => { if (event.buttons) move(event); });
  map.addEventListener("click", (event) => event.stopPropagation());
  frame.addEventListener("scroll", update);
  addEventListener("resize", update);
  return update;
}
for (const tools of document.querySelectorAll("[data-graph]")) {
  const svg = document.getElementById(tools.dataset.graph);
  const frame = svg.closest(".graph");
  const width = Number(svg.getAttribute("width"));
  const height = Number(svg.getAttribute("height"));
  // The height of the frame is that of its content, up to a limit: the limit counts.
  const fit = () => Math.min(1, frame.clientWidth / width, parseFloat(getComputedStyle(frame).maxHeight) / height);
  let zoom = 1;
  const draw = (next) => {
    zoom = Math.min(Math.max(next, 0.02), 5);
    svg.setAttribute("width", width * zoom);
    svg.setAttribute("height", height * zoom);
    frame.dispatchEvent(new Event("scroll"));
  };
  const map = minimap(frame, svg, width, height);
  // Many ops in a row would be a stripe: the first of them can be read, and the minimap shows where they are.
  draw(fit() < 0.12 || frame.clientWidth / width < 0.25 ? 0.8 : fit());
  const start = svg.querySelector("g rect");
  frame.scrollLeft = (Number(start.getAttribute("x")) + start.getAttribute("width") / 2) * zoom - frame.clientWidth / 2;
  map();
  tools.addEventListener("click", (event) => {
    const asked = event.target.dataset.zoom;
    if (!asked) return;
    draw(asked === "fit" ? fit() : asked === "1" ? 1 : zoom * Number(asked));
    const chosen = svg.querySelector("g.selected");
    if (chosen) show(chosen);
  });
  tools.addEventListener("change", (event) => {
    svg.dataset.colour = event.target.value;
  });
}
// An overview leads to what is clicked in it.
document.querySelectorAll(".graph").forEach((frame) => frame.addEventListener("click", (event) => {
  const svg = frame.querySelector("svg");
  if (event.target.closest("g") && svg.getAttribute("width") < svg.viewBox.baseVal.width / 2) {
    document.querySelector(`[data-graph=${svg.id}] [data-zoom="1"]`).click();
  }
}));
// An op is chosen in the chart, a table, the graph or the memory plan, and marked in all of them.
function choose(op) {
  for (const element of document.querySelectorAll("[data-op]")) {
    element.classList.toggle("selected", element.dataset.op === op);
  }
  const box = document.querySelector("g.selected");
  if (box) show(box);
  const point = document.querySelector(".point.selected");
  if (point) read(point);
}
function read(point) {
  const chart = point.closest(".chart");
  chart.querySelector(".readout").textContent = point.dataset.told;
  chart.querySelector(".cursor").setAttribute("d", "M" + point.dataset.x + " 0V220");
}
document.addEventListener("click", (event) => {
  const element = event.target.closest("[data-op]");
  if (element && !event.target.closest("a")) choose(element.dataset.op);
});
for (const chart of document.querySelectorAll(".chart")) {
  chart.addEventListener("pointermove", (event) => {
    const under = document.elementFromPoint(event.clientX, event.clientY);
    const point = under && under.closest(".point");
    if (point) read(point);
  });
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((folded) => { folded.open = true; }));
