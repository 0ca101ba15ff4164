"""The action's comment on a pull request: a server of this machine for GitHub's, and the steps of action.yml."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / ".github" / "pull_request_comment.py"
BOT, PERSON = {"login": "github-actions[bot]", "type": "Bot"}, {"login": "somebody", "type": "User"}
OF = "/repos/o/r/issues"


class GitHub(HTTPServer):
    """The part of GitHub's API that it uses. user: whose the token is, which a bot may not ask. may: write."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.comments: dict[int, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.user = BOT
        self.may = True

    def add(self, body: str, user: Mapping[str, str]) -> int:
        self.comments[len(self.comments) + 1] = {"id": len(self.comments) + 1, "body": body, "user": user}
        return len(self.comments)

    def bodies(self) -> list[str]:
        return [one["body"] for one in self.comments.values()]


class Handler(BaseHTTPRequestHandler):
    server: GitHub

    def do_GET(self) -> None:
        path, asked = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path == "/user":
            self.answer(403 if self.server.user is BOT else 200, self.server.user)
        elif path == f"{OF}/7/comments":
            size, page = int(asked["per_page"][0]), int(asked["page"][0])
            self.answer(200, list(self.server.comments.values())[size * (page - 1) : size * page])
        else:
            self.answer(404, {})

    def do_POST(self) -> None:
        body = self.body()
        if self.path == f"{OF}/7/comments" and self.server.may:
            self.server.add(body, self.server.user)
        self.answer(201 if self.server.may else 403, {})

    def do_PATCH(self) -> None:
        self.server.comments[int(self.path.removeprefix(f"{OF}/comments/"))]["body"] = self.body()
        self.answer(200, {})

    def body(self) -> str:
        return str(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"])

    def answer(self, code: int, content: object) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        self.send_response(code if self.headers["Authorization"] == "Bearer secret" else 401)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: object) -> None:
        """Nothing of it to stderr."""


@pytest.fixture
def github() -> Iterator[GitHub]:
    with GitHub() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Ran(NamedTuple):
    code: int
    out: str


def variables(github: GitHub, folder: Path, **changes: str) -> dict[str, str]:
    event = folder / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}))
    said = {"EVENT_NAME": "pull_request", "EVENT_PATH": str(event), "REPOSITORY": "o/r"}
    said["API_URL"] = f"http://127.0.0.1:{github.server_port}"
    found = {**os.environ, **{f"GITHUB_{name}": value for name, value in said.items()}}
    return {**found, "TOKEN": "secret", "no_proxy": "127.0.0.1", **changes}


def comment(github: GitHub, folder: Path, text: str, project: str = "models/a", **changes: str) -> Ran:
    (folder / "summary.md").write_text(text)
    command = [sys.executable, SCRIPT, project, folder / "summary.md"]
    environment = variables(github, folder, **changes)
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not ran.stderr
    return Ran(ran.returncode, ran.stdout)


@pytest.mark.parametrize("user", [BOT, PERSON])
def test_a_later_push_changes_its_own_comment(github: GitHub, tmp_path: Path, user: dict[str, str]) -> None:
    github.user = user
    other = {BOT["login"]: PERSON, PERSON["login"]: BOT}[user["login"]]
    for number in range(120):  # of two pages
        github.add(f"talk {number}", PERSON)
    assert comment(github, tmp_path, "## one\n") == (0, "")
    mine = github.bodies()[-1]
    assert mine.endswith("\n## one\n")
    copied = github.add(mine, other)
    quoted = github.add("> " + mine, user)
    assert comment(github, tmp_path, "## two\n") == (0, "")
    assert github.comments[121]["body"] == mine.replace("one", "two")
    assert (github.comments[copied]["body"], github.comments[quoted]["body"]) == (mine, "> " + mine)
    assert len(github.comments) == 123
    comment(github, tmp_path, "## three\n", project="models/b -->")
    assert github.comments[121]["body"] == mine.replace("one", "two")
    assert len(github.comments) == 124
    assert github.bodies()[-1].count("-->") == 1


def test_only_with_a_token_in_a_pull_request(github: GitHub, tmp_path: Path) -> None:
    for changes in ({"TOKEN": ""}, {"GITHUB_EVENT_NAME": "push"}):
        assert comment(github, tmp_path, "text", **changes) == (0, "")
    assert comment(github, tmp_path, "") == (0, "")
    assert not github.asked


def test_what_goes_wrong_is_a_warning(github: GitHub, tmp_path: Path) -> None:
    github.may = False  # as a fork's token
    ran = comment(github, tmp_path, "text")
    assert ran.code == 0
    assert re.fullmatch(r"::warning::no comment .*403.*pull-requests: write.*\n", ran.out)
    for changes in ({"TOKEN": "wrong"}, {"GITHUB_API_URL": "http://127.0.0.1:1"}, {"GITHUB_EVENT_PATH": "gone"}):
        ran = comment(github, tmp_path, "text", **changes)
        assert (ran.code, ran.out[:22], ran.out.count("\n")) == (0, "::warning::no comment ", 1)
    assert not github.comments


def test_a_long_summary_is_cut_at_a_line(github: GitHub, tmp_path: Path) -> None:
    comment(github, tmp_path, "| a line of a table |\n" * 5000)
    [body] = github.bodies()
    assert 64000 < len(body) < 65536
    lines = body.splitlines()
    assert set(lines[1:-1]) == {"| a line of a table |"}
    assert "summary of the job" in lines[-1]


PROJECT = """
model = "model.onnx"
[data]
calibration = "images"
[convert]
bits = "{bits}"
target = "cortex-m4"
[gates]
max_instructions = {most}
"""
# In place of the runner's Python: the package is here.
PYTHON = """#!/bin/sh
if [ "$2" = pip ]; then exit 0; fi
exec "{python}" "$@"
"""


def steps() -> list[str]:
    """The scripts of action.yml."""
    text = (ROOT / "action.yml").read_text()
    return [textwrap.dedent(one) for one in re.findall(r"^      run: \|\n((?:        .*\n)+)", text, re.MULTILINE)]


def commit(bits: str, most: int) -> str:
    Path("nmpconv.toml").write_text(PROJECT.format(bits=bits, most=most))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "a state"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    return subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.slow
def test_the_steps_of_the_action(github: GitHub, here: Path, tmp_path: Path, need_tool: Any) -> None:
    """In a pull request from 8 to 16 bits; then with a gate that is missed."""
    bash = need_tool("bash")
    for tool in ("git", "make", "arm-none-eabi-gcc", "qemu-system-arm"):
        need_tool(tool)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(PYTHON.format(python=sys.executable))
    (tmp_path / "bin" / "python").chmod(0o755)
    before = commit("8", 10**6)
    more = {"RUNNER_TEMP": str(tmp_path), "GITHUB_STEP_SUMMARY": str(tmp_path / "shown.md"), "ACTION": str(ROOT)}
    places = (str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])
    more |= {"PATH": ":".join(places), "PROJECT": ".", "BEFORE": before}
    environment = variables(github, tmp_path, DEVICE="", BOARDS="mps2-an386", **more)
    codes = []
    for most in (10**6, 10):
        commit("16", most)
        for step in steps():
            command = [bash, "--noprofile", "--norc", "-eo", "pipefail", "-c", step]
            codes.append(subprocess.run(command, env=environment, capture_output=True, check=False).returncode)
        [body] = github.bodies()
        assert body.split("\n", 1)[1] in (tmp_path / "shown.md").read_text()
        for figure, unit in (("RAM", " B"), ("instructions", "")):
            cell = rf"[\d,]+{unit} \|"
            assert re.search(rf"\| {figure} \| {cell} {cell} \+[\d,]+{unit} .*, worse \|", body)
        assert ("missed: max_instructions 10" in body) == (most == 10)
    assert codes == [0, 0, 9, 0]
    shutil.rmtree(here / ".git")
