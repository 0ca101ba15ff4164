// Commands, a line "In Python:" and a block of Python become two tabs. Who chooses one has it on all pages.
const CHOICE = "nmpconv-tab";
const NAMES = ["Command line", "Python"];

function tabbed(line, number) {
  const panels = [line.previousElementSibling, line.nextElementSibling];
  if (!panels.every((panel) => panel && panel.matches("div[class*=highlight-]"))) return null;
  const list = document.createElement("div");
  list.className = "tabs";
  list.setAttribute("role", "tablist");
  const buttons = NAMES.map((name, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.setAttribute("role", "tab");
    panels[i].id = panels[i].id || `tab-${number}-${i}`;
    panels[i].setAttribute("role", "tabpanel");
    button.setAttribute("aria-controls", panels[i].id);
    list.append(button);
    return button;
  });
  panels[0].before(list);
  line.remove();
  return { list, show: (chosen) => {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-selected", i === chosen);
      button.tabIndex = i === chosen ? 0 : -1;
      panels[i].classList.toggle("other-tab", i !== chosen);
    });
  }, buttons };
}

document.addEventListener("DOMContentLoaded", () => {
  const lines = [...document.querySelectorAll("article p")].filter((p) => p.textContent.trim() === "In Python:");
  const sets = lines.map(tabbed).filter(Boolean);
  const choose = (i) => {
    for (const set of sets) set.show(i);
    try { localStorage.setItem(CHOICE, i); } catch { /* a page without storage */ }
  };
  for (const { list, buttons } of sets) {
    buttons.forEach((button, i) => button.addEventListener("click", () => choose(i)));
    list.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const next = 1 - buttons.indexOf(document.activeElement);
      choose(next);
      buttons[next].focus();
    });
  }
  let chosen = 0;
  try { chosen = localStorage.getItem(CHOICE) === "1" ? 1 : 0; } catch { /* the same */ }
  choose(chosen);
});
