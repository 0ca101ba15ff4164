"""Opens pages of `nmpconv page` in Chromium and drops files on them."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

SECONDS = 240

# Drops one file after the other, as a reader does, and posts what came of it.
DRIVER = """
<script type="module">
const wait = (ready) => new Promise((done) => { const ask = () => (ready() ? done() : setTimeout(ask, 20)); ask(); });
const found = [];
await wait(() => window.nmp);
for (const content of %s) {
  const bytes = Uint8Array.from(atob(content), (c) => c.charCodeAt(0)), data = new DataTransfer();
  data.items.add(new File([bytes], "dropped", { type: %s }));
  const [time, failed] = ["time", "failed"].map((id) => document.getElementById(id));
  time.textContent = "";
  document.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
  await wait(() => time.textContent || failed.textContent);
  const rows = [...document.querySelectorAll("#result tr")].map((row) => [...row.cells].map((one) => one.textContent));
  const canvas = document.querySelector("canvas"), pen = canvas?.getContext("2d");
  const colour = (x) => [...pen.getImageData(x * canvas.width, canvas.height / 2, 1, 1).data].slice(0, 3);
  const colours = pen ? [0.25, 0.75].map(colour) : []; // in the middle of both halves
  found.push({ time: time.textContent, failed: failed.textContent, rows, colours, digests: await window.nmp.digest() });
}
await fetch(%s, { method: "POST", mode: "no-cors", body: JSON.stringify(found) });
</script>
"""

# Uses the microphone for some runs, stops it, and posts what came of it.
LISTENER = """
<script type="module">
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
while (!window.nmp) await pause(20);
const [live, failed] = ["live", "failed"].map((id) => document.getElementById(id));
let runs = 0;
new MutationObserver(() => { runs++; }).observe(document.getElementById("time"), { childList: true });
live.click();
for (let i = 0; i < 600 && !failed.textContent && runs < 5; i++) await pause(50);
const rows = [...document.querySelectorAll("#result tr")].map((row) => [...row.cells].map((one) => one.textContent));
const found = { failed: failed.textContent, rows, runs, button: [live.textContent] };
live.click();
await pause(300);
runs = 0;
await pause(500);
found.button.push(live.textContent);
await fetch(%s, { method: "POST", mode: "no-cors", body: JSON.stringify({ ...found, after: runs }) });
</script>
"""


def opened(chromium: str, folder: Path, page: str, files: list[Path], kind: str) -> list[dict[str, Any]]:
    """The outcome of each file, of a MIME type: texts, rows of the table, and digests of the outputs."""
    contents = json.dumps([base64.b64encode(path.read_bytes()).decode() for path in files])
    outcomes: list[dict[str, Any]] = posted(
        chromium, folder, page, lambda address: DRIVER % (contents, json.dumps(kind), address)
    )
    return outcomes


def pictured(chromium: str, folder: Path, page: str, file: Path, kind: str, size: tuple[int, int]) -> Path:
    """A picture of a page, width times height, once a file was dropped on it: Chromium waits for an image, which the
    server sends when the outcome is posted."""
    ready = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ready.wait(SECONDS)
            self.send_response(204)
            self.end_headers()

        def do_POST(self) -> None:
            ready.set()
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    content, picture = json.dumps([base64.b64encode(file.read_bytes()).decode()]), folder / "page.png"
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        driver = DRIVER % (content, json.dumps(kind), json.dumps(address))
        (folder / "page.html").write_text(f'{page}{driver}<img src="{address}" hidden>')
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--window-size={size[0]},{size[1]}", f"--screenshot={picture}", (folder / "page.html").as_uri()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=SECONDS)
        server.shutdown()
    return picture


def listened(chromium: str, folder: Path, page: str, sound: Path) -> dict[str, Any]:
    """The outcome of a page that listens to Chromium's fake microphone, which plays a WAV file."""
    flags = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    flags += (f"--use-file-for-fake-audio-capture={sound}",)
    outcome: dict[str, Any] = posted(chromium, folder, page, lambda address: LISTENER % address, *flags)
    return outcome


def posted(chromium: str, folder: Path, page: str, driver: Callable[[str], str], *flags: str) -> Any:
    """The JSON that a page with a driver posts to an address, in real time: Chromium's virtual time does not wait
    for the thread that decodes a sound."""
    posts: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.timeout = SECONDS
        file = folder / "page.html"
        address = json.dumps(f"http://127.0.0.1:{server.server_port}/")
        file.write_text(page.replace("</body>", driver(address) + "</body>"), encoding="utf-8")
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", *flags]
        command += [f"--user-data-dir={folder / 'chromium'}", file.as_uri()]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
            server.handle_request()
            browser.terminate()
    assert len(posts) == 1, f"the page posted nothing in {SECONDS} s"
    return posts[0]
