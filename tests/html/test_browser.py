"""Reports in a real browser: no error in its console, the search finds, the buttons do, a phone is wide enough."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import onnx
import pytest
from zoo_quick import HARNESS

import nmpconv

pytestmark = pytest.mark.slow
LONG = "StatefulPartitionedCall/functional_1/expanded_conv_13/project/batch_normalization_"
ZOO = ("mlperf_kws_dscnn", "cifar10_resnet20")
# What a reader would do; the page then holds what came of it.
DRIVER = """
<pre id="outcome"></pre><script>
const inside = (element, frame) => {
  const [a, b] = [element.getBoundingClientRect(), frame.getBoundingClientRect()];
  return a.left >= b.left - 1 && a.right <= b.right + 1;
};
if (innerWidth < 640) document.body.style.width = "360px";  // a window of Chromium is 500 wide at least
const folds = [...document.querySelectorAll("details")];
folds.forEach((fold) => { fold.open = true; });
const begins = [...document.querySelectorAll(".graph")].every((frame) => inside(frame.querySelector("g"), frame));
const cut = [...document.querySelectorAll("h1, h2, h3, p, caption, figcaption")]
  .filter((e) => !inside(e, e.closest("section, header") || document.body) || e.scrollWidth > e.clientWidth + 1)
  .map((e) => e.textContent.slice(0, 60));
folds.forEach((fold) => { fold.open = false; });
const zoomed = document.querySelector(".graph svg").getBoundingClientRect().width;
document.querySelector("[data-zoom='1.25']").click();
const radio = document.querySelector("input[value=exponent]");
radio.click();
const field = document.getElementById("search");
field.value = %s;
field.dispatchEvent(new Event("input"));
document.getElementById("outcome").textContent = JSON.stringify({
  zoom: document.querySelector(".graph svg").getBoundingClientRect().width / zoomed,
  colour: document.querySelector(".graph svg").dataset.colour,
  hits: [...document.querySelectorAll("g.hit")].map((g) => g.dataset.find),
  rows: document.querySelectorAll("tr.hit").length,
  told: document.getElementById("found").textContent,
  folded: [...document.querySelectorAll("details:not([open]) .hit")].length,
  pictures: [...document.images].every((image) => image.complete && image.naturalWidth > 0),
  begins,
  cut,
  wide: document.documentElement.scrollWidth,
  window: innerWidth,
});
</script></body>"""


def opened(chromium: str, page: Path, find: str, folder: Path, width: int) -> dict[str, Any]:
    """The outcome of the driver on a page."""
    text = page.read_text()
    driven = folder / f"driven-{width}.html"
    driven.write_text(text.replace("</body>", DRIVER % json.dumps(find)))
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"]
    command += [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", f"--window-size={width},900"]
    ran = subprocess.run(
        [*command, "--dump-dom", driven.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    assert [line for line in ran.stderr.splitlines() if "CONSOLE" in line] == []
    found = re.search(r'<pre id="outcome">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert found is not None
    outcome: dict[str, Any] = json.loads(unescape(found[1]))
    return outcome


def check(chromium: str, page: Path, find: str, folder: Path) -> None:
    for width in (1280, 500):
        outcome = opened(chromium, page, find, folder, width)
        assert outcome["zoom"] == pytest.approx(1.25, rel=0.01)
        assert outcome["colour"] == "exponent"
        assert outcome["hits"] and all(find in name for name in outcome["hits"])
        assert outcome["rows"] >= len(outcome["hits"])
        assert outcome["told"].startswith(str(len(outcome["hits"])))
        assert outcome["folded"] == 0  # the search unfolds
        assert outcome["pictures"]
        assert outcome["begins"]  # the graph shows its first op
        assert outcome["cut"] == []  # no text ends beyond its card
        assert outcome["wide"] <= outcome["window"]


def test_a_sample(need_tool: Callable[..., str], samples: Path, tmp_path: Path) -> None:
    """With names that are longer than a phone is wide."""
    shapes, page, model = samples / "shapes", tmp_path / "shapes.html", onnx.load(samples / "shapes" / "model.onnx")
    ports = {port.name for port in (*model.graph.input, *model.graph.output)}
    for node in model.graph.node:
        node.name = LONG + node.name
        for names in (node.input, node.output):
            names[:] = [name if name in ports or not name else LONG + name for name in names]
    for constant in model.graph.initializer:
        constant.name = LONG + constant.name
    del model.graph.value_info[:]
    nmpconv.convert(model, shapes / "calib", report=page, limit=24, labels=shapes / "labels.txt")
    check(need_tool("chromium", "chromium-browser"), page, "GlobalAveragePool", tmp_path)


@pytest.mark.zoo
@pytest.mark.parametrize("name", ZOO)
def test_models_of_the_zoo(name: str, need_tool: Callable[..., str], zoo: Path, tmp_path: Path) -> None:
    about = json.loads((zoo / "zoo.json").read_text())[name]
    data, page = HARNESS.split(zoo, name, about, tmp_path), tmp_path / "page.html"
    look: dict[str, Any] = {} if data.preprocess is None else {"mean": data.preprocess.mean, "std": data.preprocess.std}
    model = zoo / "models" / f"{name}.onnx"
    nmpconv.convert(model, data.calib, limit=8, rounding="nearest", equalize="none", report=page, **look)
    assert page.stat().st_size < 3e6
    check(need_tool("chromium", "chromium-browser"), page, "conv2d", tmp_path)
