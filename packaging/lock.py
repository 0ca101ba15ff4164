"""Writes packaging/locks/: every package that tests, proofs, lint, the site and `make wheels` install, with its hashes.

    make lock

The newest versions that pyproject.toml and packaging/requirements.txt allow, for each Python that is supported and for
every system, found by uv. What two locks have is the same version in both, as they may share an environment.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "packaging" / "locks"
OLDEST = "3.10"
DOCS_OLDEST = "3.11"  # of Sphinx
BUILDERS = ("cmake>=3.25", "ninja", "setuptools")  # that builds without isolation ask for; cobs is published as sources
HEADER = "# Written by packaging/lock.py: `make lock`.\n"


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    tools = (ROOT / "packaging" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    LOCKS.mkdir(exist_ok=True)
    lock("build", [*project["build-system"]["requires"], *BUILDERS], OLDEST)
    lock("run", project["project"]["dependencies"], OLDEST, "build")
    lock("test", [*project["project"]["dependencies"], *extras["test"]], OLDEST, "build", "run")
    lock("wheels", tools, OLDEST, "build", "test")
    lock("sim", [*extras["sim"], *(tool for tool in tools if tool.startswith("ziglang"))], OLDEST, "wheels")
    lock("lint", extras["lint"], OLDEST, "build", "test")
    lock("proofs", extras["proofs"], OLDEST, "build", "test")
    lock("docs", extras["docs"], DOCS_OLDEST, "build", "test")


def lock(name: str, wanted: list[str], oldest: str, *others: str) -> None:
    """Writes one of them. others: the locks whose versions count, where they have the same packages."""
    with tempfile.TemporaryDirectory() as folder:
        needs, output = Path(folder, "requirements.in"), Path(folder, "made")
        needs.write_text("\n".join(wanted), encoding="utf-8")
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-config", "--universal"]
        command += ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]
        command += ["--python-version", oldest, "--output-file", str(output), str(needs)]
        command += [word for other in others for word in ("--constraint", str(LOCKS / f"{other}.lock"))]
        subprocess.run(command, check=True)
        text = HEADER + output.read_text(encoding="utf-8")
    (LOCKS / f"{name}.lock").write_text(text, encoding="utf-8")
    print(f"{name}.lock: {text.count('==')} packages, {text.count('--hash')} files")


if __name__ == "__main__":
    main()
