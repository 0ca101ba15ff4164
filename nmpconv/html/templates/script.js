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
    if (hit && element.localName === "g") {
      ops += 1;
      first = first || element;
    }
  }
  found.textContent = text === "" ? "" : ops === 1 ? "1 op" : ops + " ops";
  if (first) {
    const frame = first.closest(".graph");
    const box = first.getBoundingClientRect();
    const around = frame.getBoundingClientRect();
    frame.scrollTop += box.top - around.top - around.height / 2;
    frame.scrollLeft += box.left - around.left - around.width / 2;
  }
});
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
