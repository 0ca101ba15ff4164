// A button beside each block of code copies it: of a session its commands alone, without prompts and output.
function commands(text) {
  const lines = text.split("\n"), shown = [];
  let goesOn = false;
  for (const line of lines) {
    if (line.startsWith("$ ") || goesOn) {
      shown.push(line.replace(/^\$ /, ""));
      goesOn = line.endsWith("\\");
    }
  }
  return shown.length ? shown.join("\n") : text;
}

document.addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return; // of a page that is no secure context
  for (const pre of document.querySelectorAll("div.highlight > pre")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(commands(pre.textContent.trimEnd()) + "\n");
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    pre.parentElement.append(button);
  }
});
