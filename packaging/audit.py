"""Known vulnerabilities of what the locks pin, by pip-audit. Ends with 1 where there is one.

    make audit

An index without such a service tells nothing of any package: that is said, and with --needed it ends with 1, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LOCKS = Path(__file__).resolve().parent / "locks"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--needed", action="store_true", help="to be told nothing is a failure")
    asked = parser.parse_args()
    packages = [package for lock in sorted(LOCKS.glob("*.lock")) for package in audited(lock)]
    known = {
        f"{package['name']} {package['version']}": package["vulns"]
        for package in packages
        if "skip_reason" not in package
    }
    untold = {package["name"] for package in packages if "skip_reason" in package}
    for name, faults in known.items():
        for fault in faults:
            print(f"{name}: {fault['id']}, mended in {', '.join(fault['fix_versions']) or 'no version'}")
    summary = f"{len(known)} packages, {sum(map(bool, known.values()))} with known vulnerabilities"
    print(f"{summary}; nothing is told here of {len(untold)}" if untold else summary)
    if any(known.values()) or (asked.needed and untold):
        sys.exit(1)


def audited(lock: Path) -> list[dict[str, Any]]:
    """Known vulnerabilities of each package that this Python would install; none where no service answers."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(lock), "--require-hashes", "--disable-pip"]
        command += ["--progress-spinner", "off", "--format", "json", "--output", str(report)]
        ran = subprocess.run(command, check=False, text=True, capture_output=True)
        if not report.exists():
            print(f"{lock.name}: {ran.stderr.strip().splitlines()[-1:]}")
            return [{"name": lock.stem, "skip_reason": "no service"}]
        packages: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["dependencies"]
        return packages


if __name__ == "__main__":
    main()
