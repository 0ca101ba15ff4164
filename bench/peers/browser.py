"""Milliseconds of a run in Chromium, ours and those of onnxruntime-web and LiteRT.js: `make bench-browser`.

Real numbers in and out, one thread, int8 inside; onnxruntime-web with float32 files, too, of which the better one
counts, and LiteRT.js with those alone: it refuses the int8 files. All engines are in one page and take turns. LiteRT's
files are those of `make bench`; where they are missing, it is left out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

import nmpconv
from nmpconv.exporters.browser import wasm_module
from peers import models
from peers.engines import ort, ours
from peers.job import Job

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"ort": "onnxruntime-web@1.30.0", "litert": "@litertjs/core@2.5.3"}  # from npm, into build/
COLUMNS = {
    "nmpconv": "nmpconv",
    "ort int8": "onnxruntime-web int8",
    "ort float32": "onnxruntime-web float32",
    "litert float32": "LiteRT.js float32",
}
SECONDS = 600  # for the page of a model


def install(folder: Path) -> None:
    """Installs the peers from npm, unless they are there."""
    if not all((folder / "node_modules" / name.rpartition("@")[0]).is_dir() for name in PACKAGES.values()):
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
        subprocess.run([*command, *PACKAGES.values()], check=True)


def files_of(prepared: models.Model, bench: Path) -> dict[str, Path]:
    """Files of a model by column: the engine and, of peers, the width."""
    jobs = {}
    for key, name, bits in (("nmpconv", "nmpconv", "int8"), ("ort int8", "onnxruntime", "int8")):
        where = prepared.path.parent / name
        where.mkdir(exist_ok=True)
        jobs[key] = Job(name, str(prepared.path), str(prepared.samples), str(where), bits, 1, prepared.seeded)
    ours.prepare(jobs["nmpconv"])
    ort.prepare(jobs["ort int8"])
    files = {"nmpconv": jobs["nmpconv"].file(".nmp"), "ort int8": jobs["ort int8"].file(".onnx")}
    files["ort float32"] = prepared.path
    files["litert float32"] = bench / "litert" / "float32.tflite"
    return {key: path for key, path in files.items() if path.exists()}


def serve(chromium: str, engines: list[dict[str, Any]], bench: Path, npm: Path, rounds: int) -> dict[str, Any]:
    """The page's answer by column: the outputs and the least milliseconds, or an error."""
    answers: list[dict[str, Any]] = []
    posted = Event()
    plan = json.dumps({"engines": engines, "rounds": rounds}).encode()
    module = wasm_module.wasm()
    folders = {"npm": npm / "node_modules", "wasm": ROOT / "interpreter" / "wasm", "bench": bench}

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            head, _, rest = path.partition("?")[0].lstrip("/").partition("/")
            return str(folders[head] / rest) if head in folders else str(Path(__file__).with_name("browser.html"))

        def do_GET(self) -> None:
            content = {"/plan": plan, "/nmp.wasm": module}.get(self.path)
            if content is None:
                return super().do_GET()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            answers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            posted.set()

        def log_message(self, *_: Any) -> None:
            pass

    Handler.extensions_map = Handler.extensions_map | {".mjs": "text/javascript", ".wasm": "application/wasm"}
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, tempfile.TemporaryDirectory() as profile:
        Thread(target=server.serve_forever, daemon=True).start()
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        command += ["--disable-background-timer-throttling", f"http://127.0.0.1:{server.server_port}/"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
            posted.wait(SECONDS)
            browser.terminate()
        server.shutdown()
    return answers[0] if answers else {}


def row(name: str, chromium: str, args: argparse.Namespace) -> dict[str, float]:
    """Least milliseconds by column."""
    bench = args.folder / name.replace(" ", "-").lower()
    prepared = models.prepare(name, args.zoo, bench)
    sample = np.load(prepared.samples)[0].astype(np.float32)
    engines, files = [], files_of(prepared, bench)
    for key, path in files.items():
        engine = key.split()[0]
        is_image = sample.ndim == 4 and sample.shape[1] in (1, 3)
        is_last = is_image and (engine == "litert" or nmpconv.load(files["nmpconv"]).inputs[0].shape != sample.shape)
        values = np.ascontiguousarray(np.moveaxis(sample, 1, -1) if is_last and engine != "ort" else sample)
        where = bench / f"{engine}.f32"
        where.write_bytes(values.tobytes())
        about = {"key": key, "engine": engine, "file": f"/bench/{path.relative_to(bench)}", "shape": values.shape}
        engines.append(about | {"input": f"/bench/{where.name}"})
    answer = serve(chromium, engines, bench, args.folder / "browser", args.rounds)
    wanted = np.ravel(answer.get("ort float32", {}).get("outputs", []))
    rates = {}
    for key, about in answer.items():
        if "outputs" not in about:
            print(f"  {name}: {key} is left out: {about['error'][:200]}", file=sys.stderr)
        elif np.corrcoef(np.ravel(about["outputs"]), wanted)[0, 1] < 0.9:
            print(f"  {name}: {key} is left out: other outputs", file=sys.stderr)
        else:
            rates[key] = float(about["ms"])
    return rates


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-browser", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--zoo", type=Path, default=os.environ.get("NMP_ZOO"), help="the folder with zoo.json")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench", help="what is prepared, and the table")
    parser.add_argument("--only", nargs="+", metavar="MODEL", help="default: all")
    parser.add_argument("--rounds", type=int, default=60)
    args = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("chromium is missing")
    install(args.folder / "browser")
    heads = " | ".join(COLUMNS.values())
    lines = [f"| model | {heads} | best peer / nmpconv |", "|---|" + "---:|" * (len(COLUMNS) + 1)]
    for name in args.only or (*models.CLASSIFIERS, models.RESNET):
        rates = row(name, chromium, args)
        peer = min((ms for key, ms in rates.items() if key != "nmpconv"), default=float("nan"))
        cells = [f"{rates[key]:.3g}" if key in rates else "-" for key in COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} | {peer / rates.get('nmpconv', float('nan')):.1f} |")
        print(lines[-1], flush=True)
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    version = subprocess.run([chromium, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    caption = f"Milliseconds of a run, the best of {args.rounds} turns, one thread, {version}, {date}; "
    text = "\n".join([caption + ", ".join(PACKAGES.values()) + f", nmpconv {ours.version()}.", "", *lines, ""])
    (args.folder / "browser.md").write_text(text)
    print("\n" + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
