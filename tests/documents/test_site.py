"""The site: strict about links, whole without a network."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# What a browser loads without being asked; links that a reader follows are not meant.
LOADS = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="(?:https?:)?//"""
    r"""|<link\b[^>]*\bhref="(?:https?:)?//"""
    r"""|url\(["']?(?:https?:)?//|@import"""
)


@pytest.fixture(scope="module")
def sphinx() -> None:
    if importlib.util.find_spec("sphinx") is None:
        assert not os.environ.get("NMP_CI"), "in CI nothing is optional"
        pytest.skip("needs the extra docs")


def build(source: Path, output: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-c",
        source / "docs" / "site",
        source,
        output,
    ]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_it_asks_nothing_of_the_network(root: Path, tmp_path: Path, sphinx: None) -> None:
    ran = build(root, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / "index.html").exists() and (tmp_path / "search.html").exists()
    asks = {
        f"{path.relative_to(tmp_path)}: {found}"
        for path in tmp_path.rglob("*")
        if path.suffix in (".html", ".css")
        for found in LOADS.findall(path.read_text(encoding="utf-8"))
    }
    assert asks == set()
    results, usage = ((tmp_path / f"docs/{name}.html").read_text(encoding="utf-8") for name in ("results", "usage"))
    assert "<td><p>289\u00a0kB</p></td>" in results and "289 kB" not in results
    assert re.search(r'<code class="[^"]*unbroken[^"]*"><span class="pre">--memory</span>', usage)


def test_every_document_is_in_it(root: Path, sphinx: None) -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=root, capture_output=True, text=True, check=True).stdout
    sys.path.insert(0, str(root / "docs" / "site"))
    try:
        spec = importlib.util.spec_from_file_location("conf", root / "docs" / "site" / "conf.py")
        assert spec and spec.loader
        conf = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(conf)
    finally:
        sys.path.pop(0)
    forms = ("/templates/", ".github/")  # for who writes, not for who reads
    ours = {name.removesuffix(".md") for name in listed.splitlines() if not any(form in name for form in forms)}
    assert ours == set(conf.PAGES)


CONF = """
__file__ = {path!r}
exec(compile(open(__file__).read(), __file__, "exec"))
navigation, root_doc, include_patterns = {{}}, "index", ["*.md"]
"""


def site(root: Path, folder: Path, text: str) -> str:
    """Returns what is said of a site with this text; '' where it is built."""
    source = folder / "source"
    (source / "docs" / "site").mkdir(parents=True)
    (source / "folder").mkdir()
    (source / "plain.c").write_text("")
    (source / "docs" / "site" / "conf.py").write_text(CONF.format(path=str(root / "docs" / "site" / "conf.py")))
    (source / "index.md").write_text(f"# Index\n\n{text}\n")
    (source / "other.md").write_text("---\norphan: true\n---\n\n# Other\n\n## Here\n")
    ran = build(source, folder / "site")
    assert bool(ran.returncode) == bool(ran.stderr), ran.stderr
    return ran.stderr


def test_broken_links_end_the_build(root: Path, tmp_path: Path, sphinx: None) -> None:
    """Each of them is a warning, and warnings end it."""
    said = site(root, tmp_path, "[x](gone.md)\n\n[x](other.md#absent)\n\n[x](away/)").splitlines()
    warned = [line for line in said if "WARNING: " in line]
    for wrong in ("gone.md", "absent", "away"):
        assert [wrong in line for line in warned].count(True) == 1, said
    assert len(warned) == 3, said


def test_links_that_are_there(root: Path, tmp_path: Path, sphinx: None) -> None:
    assert site(root, tmp_path, "[x](other.md#here)\n\n[x](folder) [y](folder/) [z](plain.c)") == ""


TABBED = """<article><div class="highlight-none">nmpconv</div><p>In Python:</p>
<div class="highlight-python">import</div><p>In Python:</p><p>no block</p></article>
<style>{style}</style><script>{script}</script><pre></pre><script>
addEventListener("load", () => {{
  const shown = () => [...document.querySelectorAll("article > div[class^=high]")].map((e) => e.offsetHeight > 0);
  const states = [shown()];
  document.querySelectorAll("[role=tab]")[1].click();
  states.push(shown(), document.querySelectorAll("[role=tablist]").length);
  document.querySelector("pre").textContent = JSON.stringify(states);
}});</script>"""


@pytest.mark.slow
def test_commands_and_python_are_tabs(root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    style, script = ((root / "docs/site/static" / name).read_text() for name in ("site.css", "tabs.js"))
    (tmp_path / "page.html").write_text("<!doctype html>" + TABBED.format(style=style, script=script))
    command = [need_tool("chromium", "chromium-browser"), "--headless", "--no-sandbox", "--disable-gpu"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", (tmp_path / "page.html").as_uri()]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "<pre>[[true,false],[false,true],1]</pre>" in printed
