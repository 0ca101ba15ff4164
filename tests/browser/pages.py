"""Opens pages of `nmpconv page` in Chromium and drops files on them."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from html import unescape
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

# What a reader does: drops one file after the other; the page then holds what came of it.
DRIVER = """
<pre id="outcome"></pre><script type="module">
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
  found.push({ time: time.textContent, failed: failed.textContent, rows, digests: await window.nmp.digest() });
}
document.getElementById("outcome").textContent = JSON.stringify(found);
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
    given = json.dumps([base64.b64encode(path.read_bytes()).decode() for path in files])
    file = folder / "page.html"
    file.write_text(page.replace("</body>", DRIVER % (given, json.dumps(kind)) + "</body>"), encoding="utf-8")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000", "--dump-dom"]
    command += [f"--user-data-dir={folder / 'chromium'}", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    outcome = re.search(r'<pre id="outcome">(.*?)</pre>', done.stdout, re.DOTALL)
    assert outcome is not None
    assert outcome[1], done.stderr[-2000:]
    found: list[dict[str, Any]] = json.loads(unescape(outcome[1]))
    return found


def listened(chromium: str, folder: Path, page: str, sound: Path) -> dict[str, Any]:
    """The outcome of a page that listens to Chromium's fake microphone, which plays a WAV file. It takes real time."""
    found: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.timeout = 120
        driver = LISTENER % json.dumps(f"http://127.0.0.1:{server.server_port}/")
        file = folder / "page.html"
        file.write_text(page.replace("</body>", driver + "</body>"), encoding="utf-8")
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        command += ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        command += [f"--use-file-for-fake-audio-capture={sound}", f"--user-data-dir={folder / 'chromium'}"]
        with subprocess.Popen(
            [*command, file.as_uri()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as browser:
            server.handle_request()
            browser.terminate()
    assert len(found) == 1, "the page posted nothing"
    return found[0]
