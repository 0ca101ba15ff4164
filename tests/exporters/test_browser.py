"""Reports in a real browser: no error in its console, the search finds, the buttons do, a phone is wide enough.

Text can be read in light and dark, and the keyboard reaches all that scrolls. Pictures of the pages of large nets are
left in the folder that NMP_PICTURES names, to be looked at.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_net import Net
from PIL import Image
from zoo_quick import HARNESS

import nmpconv

pytestmark = pytest.mark.slow
LONG = "StatefulPartitionedCall/functional_1/expanded_conv_13/project/batch_normalization_"
ZOO = ("mlperf_kws_dscnn", "cifar10_resnet20")
LARGE = ("mobilenetv2_100_224_ptqdeq", "yolox_nano_416")
# Samples with what convert is told: a classifier, a detector, a stream.
SHOWN = {
    "shapes": "--data calib --labels labels.txt --mean 123.675,116.28,103.53 --std 58.395,57.12,57.375",
    "boxes": "--data calib --mean 0 --std 255 --decoder yolox",
    "sounds": "--data {data}/calib.npy --labels labels.txt --stream axis=2,hop=2",
}
FRONT = {"shapes-wide-light": "report.png", "shapes-phone-dark": "report-phone.png"}  # in docs/: the tops of these
FRONT_TALL = 1060
LOOK = ("mean", "std", "channel_order", "resize", "crop")
WIDE, PHONE, TALL = 1280, 390, 3600  # pixels of a picture
DARK = "--blink-settings=preferredColorScheme=0"
READABLE = 4.5  # the least contrast of text by WCAG 2, AA
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
const numbers = (colour) => {
  const found = colour.match(/[0-9.]+/g).map(Number);
  return colour.startsWith("color(") ? found.map((x, i) => (i < 3 ? 255 * x : x)) : found;
};
const light = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const behind = (element) => {
  const box = element.closest("g")?.querySelector("rect");
  if (box) return numbers(getComputedStyle(box).fill);
  for (let e = element; e; e = e.parentElement) {
    const found = numbers(getComputedStyle(e).backgroundColor);
    if (found.length < 4 || found[3] === 1) return found;
  }
};
const contrast = (element) => {
  const style = getComputedStyle(element);
  const pair = [numbers(element.closest("svg") ? style.fill : style.color), behind(element)].map(light);
  return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
};
const kinds = "a, h1, h2, h3, p, th, td, li, caption, figcaption, label, summary, text, b";
const texts = [...document.querySelectorAll(kinds)];
const pale = texts.filter((e) => contrast(e) < %s).map((e) => `${contrast(e).toFixed(1)} ${e.textContent}`);
const scrolls = (e) => e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1;
const unreached = [...document.querySelectorAll(".graph, .wide")].filter((e) => scrolls(e) && e.tabIndex < 0);
const named = (e) => e.ariaLabel || e.textContent.trim() || e.labels?.length || e.getAttribute("aria-labelledby");
const told = "button, input, a, svg[role], [role=region], [role=group]";
const nameless = [...document.querySelectorAll(told)].filter((e) => !named(e));
folds.forEach((fold) => { fold.open = false; });
const box = document.querySelector(".graph g rect").getBoundingClientRect().width;
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
  box,
  cut,
  pale,
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  unreached: unreached.map((e) => e.outerHTML.slice(0, 80)),
  nameless: nameless.map((e) => e.outerHTML.slice(0, 80)),
  wide: document.documentElement.scrollWidth,
  window: innerWidth,
  map: (() => {
    const [frame, map] = [".graph", ".minimap"].map((found) => document.querySelector(found));
    document.querySelector("[data-zoom=fit]").click();
    const over = frame.scrollHeight > frame.clientHeight + 1 || frame.scrollWidth > frame.clientWidth + 1;
    const fits = (map.style.display === "none") !== over;
    document.querySelector("[data-zoom='1']").click();
    for (let i = 0; i < 9; i++) document.querySelector("[data-zoom='1.25']").click();
    const [shown, box] = [map.style.display !== "none", map.getBoundingClientRect()];
    frame.scrollTop = 0;
    const [clientX, clientY] = [box.left + box.width / 2, box.bottom - 1];
    map.dispatchEvent(new PointerEvent("pointerdown", { clientX, clientY }));
    const view = Number(map.querySelector(".view").getAttribute("y"));
    const ops = [map.querySelectorAll("rect:not(.view)"), frame.querySelectorAll("g")].map((found) => found.length);
    return { fits, shown, moved: frame.scrollTop > 0 && view > 0, whole: ops[0] === ops[1] };
  })(),
});
</script></body>"""


def browsed(chromium: str, folder: Path, page: Path, *more: str) -> str:
    """Returns what the browser prints; nothing on the page's console."""
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"]
    command += [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", *more, page.as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert [line for line in ran.stderr.splitlines() if "CONSOLE" in line] == []
    return ran.stdout


def opened(chromium: str, page: Path, find: str, folder: Path, width: int, *more: str) -> dict[str, Any]:
    """The outcome of the driver on a page."""
    text = page.read_text()
    driven = folder / f"driven-{width}.html"
    driven.write_text(text.replace("</body>", DRIVER % (READABLE, json.dumps(find))))
    printed = browsed(chromium, folder, driven, f"--window-size={width},900", *more, "--dump-dom")
    found = re.search(r'<pre id="outcome">(.*?)</pre>', printed, re.DOTALL)
    assert found is not None
    outcome: dict[str, Any] = json.loads(unescape(found[1]))
    return outcome


def check(chromium: str, page: Path, find: str, folder: Path) -> None:
    for width, more in ((1280, ()), (500, ()), (1280, (DARK,))):
        outcome = opened(chromium, page, find, folder, width, *more)
        assert outcome["dark"] is bool(more)
        assert outcome["pale"] == []
        assert outcome["unreached"] == []  # by the keyboard
        assert outcome["nameless"] == []  # for who cannot see
        assert outcome["zoom"] == pytest.approx(1.25, rel=0.01)
        assert outcome["colour"] == "exponent"
        assert outcome["hits"] and all(find.lower() in name.lower() for name in outcome["hits"])
        assert outcome["rows"] >= len(outcome["hits"])
        assert outcome["told"].startswith(str(len(outcome["hits"])))
        assert outcome["folded"] == 0  # the search unfolds
        assert outcome["pictures"]
        assert outcome["begins"]  # the graph shows its first op
        assert all(outcome["map"].values()), outcome["map"]
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


@pytest.mark.parametrize("chain", [True, False])
def test_many_ops_in_a_row_can_be_read(need_tool: Callable[..., str], tmp_path: Path, chain: bool) -> None:
    """A graph of which the whole would be a stripe opens where it begins."""
    net, page = Net((1, 4, 4, 4)), tmp_path / "page.html"
    ends = ["x"]
    for _ in range(120 if chain else 40):
        ends.append(net.conv(ends[-1] if chain else "x", 4, 1))
    outputs = ends[-1:] if chain else ends[1:]
    images = np.random.default_rng(0).normal(size=(8, 4, 4, 4)).astype(np.float32)
    nmpconv.convert(net.model(outputs), images, fast=True, report=page)
    for width in (1280, 500):
        outcome = opened(need_tool("chromium", "chromium-browser"), page, "conv2d", tmp_path, width)
        assert outcome["begins"] and outcome["box"] > 100 and outcome["map"]["fits"]


def pictured(chromium: str, page: Path, folder: Path, width: int, *, dark: bool) -> Path:
    """The top of a page, in a frame of this width: the browser's own windows are no narrower than 500."""
    picture = folder / f"{page.stem}-{'wide' if width == WIDE else 'phone'}-{'dark' if dark else 'light'}.png"
    frame = page.parent / "frame.html"
    size = f"width: {width}px; height: {TALL}px"
    inner = f'<iframe src="{page.as_uri()}" style="border: 0; {size}"></iframe>'
    frame.write_text(f'<body style="margin: 0">{inner}</body>')
    more = ["--hide-scrollbars", f"--window-size={max(width, 500)},{TALL}", *([DARK] if dark else [])]
    browsed(chromium, page.parent, frame, *more, f"--screenshot={picture}")
    with Image.open(picture) as image:
        image.crop((0, 0, width, TALL)).save(picture)
    return picture


def look_at(chromium: str, page: Path, tmp_path: Path) -> None:
    """Pictures of a page, wide and as on a phone, in light and dark."""
    check(chromium, page, "conv2d", tmp_path)
    folder = Path(os.environ.get("NMP_PICTURES", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    for width in (WIDE, PHONE):
        for dark in (False, True):
            grey = np.asarray(Image.open(pictured(chromium, page, folder, width, dark=dark)).convert("L"))
            assert grey.shape == (TALL, width)
            assert np.median(grey) < 64 if dark else np.median(grey) > 192
            assert all(grey[i : i + 400].std() > 4 for i in range(0, TALL, 400))  # nowhere empty


@pytest.mark.parametrize("name", SHOWN)
def test_pictures_of_samples(name: str, need_tool: Callable[..., str], samples: Path, tmp_path: Path) -> None:
    """The folder that NMP_PICTURES names has pictures of docs/, too, as they are now."""
    page, data = tmp_path / f"{name}.html", tmp_path / "data"
    if name == "sounds":
        subprocess.run([sys.executable, samples / name / "sounds.py", data], check=True)
    options = [*SHOWN[name].format(data=data).split(), "-o", tmp_path / f"{name}.nmp", "--report", page]
    command = [sys.executable, "-m", "nmpconv", "convert", "model.onnx", *options]
    subprocess.run(command, cwd=samples / name, check=True, capture_output=True)
    look_at(need_tool("chromium", "chromium-browser"), page, tmp_path)
    for whole, picture in FRONT.items():
        path = Path(os.environ.get("NMP_PICTURES", tmp_path)) / f"{whole}.png"
        if path.stem.startswith(name):
            with Image.open(path) as image, Image.open(samples.parent / "docs" / picture) as shown:
                top = image.crop((0, 0, image.width, FRONT_TALL))
                top.convert("RGB").save(path.parent / picture, optimize=True)
                assert shown.size == top.size


@pytest.mark.zoo
@pytest.mark.parametrize("name", LARGE)
def test_pictures_of_large_nets(name: str, need_tool: Callable[..., str], zoo: Path, tmp_path: Path) -> None:
    look_at(need_tool("chromium", "chromium-browser"), report_of(name, zoo, tmp_path), tmp_path)


@pytest.mark.zoo
@pytest.mark.parametrize("name", ZOO)
def test_models_of_the_zoo(name: str, need_tool: Callable[..., str], zoo: Path, tmp_path: Path) -> None:
    page = report_of(name, zoo, tmp_path)
    check(need_tool("chromium", "chromium-browser"), page, "conv2d", tmp_path)


def report_of(name: str, zoo: Path, tmp_path: Path) -> Path:
    about = json.loads((zoo / "zoo.json").read_text())[name]
    data, page = HARNESS.split(zoo, name, about, tmp_path), tmp_path / f"{name}.html"
    look = {} if data.preprocess is None else {key: getattr(data.preprocess, key) for key in LOOK}
    model = zoo / "models" / f"{name}.onnx"
    look |= {"decoder": "yolox"} if name.startswith("yolox") else {}
    nmpconv.convert(model, data.calib, limit=8, rounding="nearest", equalize="none", report=page, **look)
    assert page.stat().st_size < 3e6
    return page
