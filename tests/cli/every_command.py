"""A command line for each command in each of its modes, and the folder of inputs that they name."""

from __future__ import annotations

from pathlib import Path

import cli_files
import numpy as np
import onnx
from onnx_text import build
from uf2_files import uf2

import nmpconv
from nmpconv.cli import main

LABELLED = ("eval", "model.nmp", "--data", "labels.csv")
HOST = ("--device", "sim:host")
BOARD = "mps2-an386"
ON_A_BOARD = ("bench", "model.nmp", "--device", f"sim:{BOARD}")  # its firmware is compiled for slow tests alone
COMMANDS: dict[str, list[tuple[str, ...]]] = {
    "bench": [("bench", "model.nmp", "--runs", "2")],
    "bench-device": [("bench", "model.nmp", *HOST)],
    "bisect": [
        ("bisect", "model.onnx", "made.nmp", "--data", "images"),
        ("bisect", "model.onnx", "made.nmp", "--data", "labels.csv", "--metric", "score.py:score", "-o", "scored"),
    ],
    "build": [("build",), ("build", "missed.toml"), ("build", "unlabelled.toml")],
    "bundle": [
        ("bundle", "model.nmp", "-o", "c"),
        ("bundle", "model.nmp", "--as", "idf", "-o", "idf"),
        ("bundle", "-o", "library"),
    ],
    "page": [("page", "model.nmp")],
    "compare": [("compare", "model.nmp", *HOST)],
    "convert": [
        ("convert", "model.onnx", "--data", "images"),
        ("convert", "model.onnx", "--data", "images", "--rounding", "nearest", "--equalize", "none"),
        ("convert", "model.onnx", "--data", "images", "--bits", "auto", "--goal", "sqnr=20"),
        ("convert", "model.onnx", "--data", "images", "--target", "cortex-m4", "--report", "r.html"),
        ("convert", "plane.onnx", "--data", "planes.npy", "--bits", "auto", "--goal", "sqnr=20"),
        ("convert", "plane.onnx", "--data", "planes.npy", "--levers"),
        ("convert", "model.onnx", "--data", "images", "--limit", "6", "--levers"),
        ("convert", "model.onnx", "--dry-run"),
        ("convert", "best.onnx", "--data", "images", "-o", "again.nmp", "--bits", "16"),
    ],
    "device-build": [],  # done for the others
    "device-flash": [
        ("device", "flash", "pico", "firmware.uf2"),
        ("device", "flash", "auto", "other.uf2", "--drive", "other"),
    ],
    "device-info": [("device", "info", "sim:host")],
    "device-list": [("device", "list")],
    "error": [
        ("inspect", "absent.nmp"),
        ("inspect", "cut.nmp"),
        ("run", "cut.nmp", "images"),
        ("convert", "model.onnx", "--data", "images", "--mean", "1,2"),
        ("convert", "odd.onnx", "--data", "images"),
        ("bench", "model.nmp", "--runs", "few"),
        ("inspect",),
    ],
    "eval": [
        LABELLED,
        (*LABELLED, "--reference", "model.onnx", "--metric", "psnr"),
        ("eval", "model.nmp", "--data", "images"),
        ("eval", "step.nmp", "--data", "frames.npy"),
        ("eval", "step.nmp", "--data", "loud.npy"),
        ("eval", "best.nmp", "--data", "images", "--reference", "best.onnx"),
    ],
    "export": [("export", "made.nmp")],
    "init": [("init", "model.onnx", "-o", "new.toml")],
    "inspect": [
        ("inspect", "model.nmp"),
        ("inspect", "made.nmp", "--target", "cortex-m4"),
        ("inspect", "step.nmp"),
    ],
    "inspect-memory": [
        ("inspect", "model.nmp", "made.nmp", "--memory"),
        ("inspect", "model.nmp", "step.nmp", "--memory", "--target", "rv32"),
    ],
    "ops": [("ops",)],
    "report": [("report", "made.nmp"), ("report", "model.nmp", "made.nmp", "-o", "two.html")],
    "run": [
        ("run", "model.nmp", "images"),
        ("run", "model.nmp", "images", "-o", "y.npz"),
        ("run", "step.nmp", "frames.npy"),
        ("run", "step.nmp", "loud.npy"),
        ("run", "bare.nmp", "images"),
        ("run", "best.nmp", "images", "-o", "best.npz"),
    ],
}


def write_inputs(here: Path) -> None:
    """Writes what the commands name into a folder, but for firmware."""
    onnx.save(cli_files.onnx_model(), here / "model.onnx")
    onnx.save(cli_files.onnx_model(extra="RandomNormalLike"), here / "odd.onnx")
    (here / "model.nmp").write_bytes(cli_files.nmp_bytes())
    (here / "bare.nmp").write_bytes(cli_files.nmp_bytes(labels=()))
    (here / "score.py").write_text("def score(outputs, label, reference):\n    return float(outputs[0].max())\n")
    best = "[best] y = ArgMax<axis=1>(r) [all] z = Add(r, r)"
    text = f"(float[1,3,8,8] x) => (y, z) {{ [conv] c = Conv(x, w) [relu] r = Relu(c) {best} }}"
    weights = np.random.default_rng(5).normal(size=(4, 3, 3, 3)) * 0.1
    build(text, 13, here / "best.onnx", arrays={"w": weights})
    (here / "cut.nmp").write_bytes(cli_files.nmp_bytes()[:-64])
    cli_files.images(here / "images")
    pictures = sorted((here / "images").glob("*.png"))
    rows = [f"images/{path.name},{i % cli_files.CLASSES}" for i, path in enumerate(pictures)]
    (here / "labels.csv").write_text("\n".join(["file,label", *rows, ""]))
    data = '[data]\ncalibration = "images"\ntest = "labels.csv"\n'
    for name, least in (("nmpconv.toml", 5), ("missed.toml", 500)):
        (here / name).write_text(f'model = "model.onnx"\n{data}[gates]\nmin_sqnr = {least}\n[targets.a]\n')
    plain = data.replace('test = "labels.csv"\n', "")
    (here / "unlabelled.toml").write_text(f'model = "model.onnx"\noutput = "u"\n{plain}[gates]\nmin_sqnr = 5.5\n')
    np.save(here / "frames.npy", np.random.default_rng(0).normal(size=(3, 1, 4)).astype(np.float32))
    np.save(here / "loud.npy", 255 * np.load(here / "frames.npy"))
    np.save(here / "planes.npy", np.random.default_rng(1).normal(size=(6, 1, 2, 4, 4)).astype(np.float32))
    build("(float[1,2,4,4] r) => (logits) { g = Tanh(r) logits = Mul(g, r) }", 13, here / "plane.onnx")
    build("(float[1,4] x, float[1,4] last) => (y) { m = Tanh(last) y = Add(m, x) }", 13, here / "filter.onnx")
    nmpconv.convert(here / "filter.onnx", here / "frames.npy", state=["y=last"], labels=list("abcd")).save(
        here / "step.nmp"
    )
    nmpconv.convert(here / "best.onnx", here / "images").save(here / "best.nmp")
    for drive, id_ in (("drive", "RPI-RP2"), ("other", "Other-v0")):
        (here / drive).mkdir()
        (here / drive / "INFO_UF2.TXT").write_text(f"Model: A board\nBoard-ID: {id_}\n")
    (here / "firmware.uf2").write_bytes(uf2(0xE48BFF56))
    (here / "other.uf2").write_bytes(uf2(0x55114460))
    vectors = ["--test-vectors", "1", "-q"]
    assert main(["convert", f"{here}/model.onnx", "--data", f"{here}/images", "-o", f"{here}/made.nmp", *vectors]) == 0
