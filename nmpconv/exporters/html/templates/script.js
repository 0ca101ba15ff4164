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
document.querySelectorAll(".graph").forEach((frame) => show(frame.querySelector("g")));
search.addEventListener("keydown", (event) => {
  const first = document.querySelector("g.hit");
  if (event.key === "Enter" && first) first.closest("section").scrollIntoView();
});
for (const tools of document.querySelectorAll("[data-graph]")) {
  const svg = document.getElementById(tools.dataset.graph);
  const width = Number(svg.getAttribute("width"));
  const height = Number(svg.getAttribute("height"));
  let zoom = 1;
  tools.addEventListener("click", (event) => {
    const factor = Number(event.target.dataset.zoom);
    if (!factor) return;
    zoom = factor === 1 ? 1 : Math.min(Math.max(zoom * factor, 0.1), 5);
    svg.setAttribute("width", width * zoom);
    svg.setAttribute("height", height * zoom);
  });
  tools.addEventListener("change", (event) => {
    svg.dataset.colour = event.target.value;
  });
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((folded) => { folded.open = true; }));
