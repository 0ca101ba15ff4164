"""The software bill of materials of a wheel: what is compiled into it that is not nmpconv's own, as CycloneDX 1.6.

    python sbom.py nmpconv.cdx.json build/wheels/firmware

Of the wheel that this environment builds with the firmware of that folder. Where a component ends up in the wheel is
said as its occurrences. What pip installs beside the wheel stands in its metadata. The same environment gives the same
bytes; the time is SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections import defaultdict
from datetime import datetime, timezone
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import nanobind
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.component_evidence import ComponentEvidence, Occurrence
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parent.parent
EXTENSION = "nmpconv/_nmp.*"
RUNTIMES = "the libraries of LLVM that come with this compiler: libc++, libc++abi, libunwind, compiler-rt"


def main() -> None:
    output, firmware = map(Path, sys.argv[1:])
    [version] = re.findall(r'^__version__ = "(.+)"', (ROOT / "nmpconv" / "__init__.py").read_text(), re.MULTILINE)
    ours = Component(
        name="nmpconv",
        version=version,
        type=ComponentType.APPLICATION,
        licenses=[LicenseExpression("Apache-2.0")],
        purl=PackageURL("pypi", name="nmpconv", version=version),
        bom_ref="nmpconv",
    )
    time = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    parts = [*extension(), *linked(firmware)]
    bom = Bom(components=parts, metadata=BomMetaData(component=ours, timestamp=time))
    bom.register_dependency(ours, parts)
    bom.serial_number = uuid5(NAMESPACE_URL, " ".join(str(part.purl) for part in (ours, *parts)))
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    output.write_text(text, encoding="utf-8")


def extension() -> list[Component]:
    """Components compiled into the Python extension."""
    header = Path(nanobind.include_dir()).parent.glob("ext/robin_map/include/tsl/robin_growth_policy.h")
    robin = re.findall(r"TSL_RH_VERSION_\w+ (\d+)", next(header).read_text())
    return [
        pypi("nanobind", "BSD-3-Clause", ""),
        component(PackageURL("github", "tessil", "robin-map", ".".join(robin)), [EXTENSION], "MIT"),
        pypi("ziglang", "Apache-2.0 WITH LLVM-exception", RUNTIMES),
    ]


def linked(firmware: Path) -> list[Component]:
    """The C libraries that are linked into the firmware of boards, by the Debian packages that they are from."""
    places: dict[str, list[str]] = defaultdict(list)
    for program in sorted(firmware.glob("*.elf")):
        makefile = ROOT / "interpreter" / "firmware" / "boards" / program.stem / "board.mk"
        for package in makefile.read_text().partition("PACKAGES :=")[2].splitlines()[0].split():
            places[package].append(f"nmpconv/firmware/{program.name}")
    return [component(PackageURL("deb", "debian", name, installed(name)), at) for name, at in sorted(places.items())]


def installed(package: str) -> str | None:
    """The version of a Debian package; None where another system gave the compiler."""
    command = ["dpkg-query", "-W", "-f", "${Version}", package]
    try:
        return subprocess.run(command, check=True, text=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def pypi(name: str, terms: str, words: str) -> Component:
    return component(PackageURL("pypi", name=name, version=importlib.metadata.version(name)), [EXTENSION], terms, words)


def component(purl: PackageURL, places: list[str], terms: str = "", words: str = "") -> Component:
    """terms: as an SPDX expression; those of Debian's packages lie beside the firmware."""
    return Component(
        name=purl.name,
        version=purl.version,
        purl=purl,
        bom_ref=purl.to_string(),
        description=words or None,
        licenses=[LicenseExpression(terms)] if terms else None,
        evidence=ComponentEvidence(occurrences=[Occurrence(location=place) for place in places]),
    )


if __name__ == "__main__":
    main()
