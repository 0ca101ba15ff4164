"""The wheel of nmpconv-runtime from one of nmpconv: the same files, but only those that `load` and a run need.

    python runtime.py dist/nmpconv-0.2.0-cp312-abi3-manylinux_2_17_aarch64.whl dist/

It needs numpy alone. Both install the package `nmpconv`, so an environment has one or the other.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

NAME, NEEDS = "nmpconv-runtime", "numpy"
MODULES = (
    "__init__",
    "errors",
    "base/__init__",
    "base/confidence",
    "base/files",
    "base/fixed_point",
    "base/float_rounding",
    "base/near_names",
    "base/quantities",
    "base/sound",
    "base/summary",
    "base/thread_pool",
    "base/turns",
    "base/type_check",
    "base/verdict",
    "data/__init__",
    "data/columns",
    "data/images",
    "data/tables",
    "ir",
    "runtime/__init__",
    "runtime/batches",
    "runtime/interpreter",
    "runtime/ports",
)
MODULES += ("file/__init__", "file/_schema", "file/flatbuffer", "file/reader")
KEPT = re.compile(rf"nmpconv/(({'|'.join(MODULES)})\.py|py\.typed|_nmp\..*)$")
ABOUT = """\
Runs `.nmp` files, which nmpconv makes from ONNX models, with the same bits everywhere.

    import nmpconv

    net = nmpconv.load("model.nmp")
    (scores,) = net(image)    # uint8 [H,W,C], or floats of the model's input

This is nmpconv without the converter and the commands: install one or the other, not both.
"""


def runtime(wheel: Path, folder: Path) -> Path:
    """Writes the wheel into a folder. Equal bytes for equal ones; times are those of the given wheel."""
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        old = metadata.partition("/")[0]
        new = old.replace("nmpconv-", f"{NAME.replace('-', '_')}-")
        times = {info.filename: info.date_time for info in archive.infolist()}
        files = {name: archive.read(name) for name in archive.namelist() if KEPT.match(name)}
        for name in (f"{old}/WHEEL", *(n for n in archive.namelist() if n.startswith(f"{old}/licenses/"))):
            files[name.replace(old, new)] = archive.read(name)
            times[name.replace(old, new)] = times[name]
        for name in (n for n in archive.namelist() if n.startswith(f"{old}/sboms/") and n.endswith(".json")):
            files[name.replace(old, new)] = _bill(archive.read(name), list(files)).encode()
            times[name.replace(old, new)] = times[name]
        files[f"{new}/METADATA"] = _metadata(archive.read(metadata).decode()).encode()
    files[f"{new}/RECORD"] = _record(files, f"{new}/RECORD").encode()
    path = folder / wheel.name.replace("nmpconv-", f"{NAME.replace('-', '_')}-")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, times.get(name, times[metadata]))
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, data)
    return path


def _metadata(text: str) -> str:
    """Metadata of nmpconv with another name and text, and the runtime's requirements alone."""
    head = text.partition("\n\n")[0].splitlines()
    [numpy] = [line for line in head if re.match(rf"Requires-Dist: {NEEDS}\b", line)]
    lines = [line for line in head if not line.startswith(("Requires-Dist", "Provides-Extra", "Name:", "Summary:"))]
    at = lines.index(next(line for line in lines if line.startswith("Version:")))
    named = [f"Name: {NAME}", lines[at], "Summary: Runs .nmp files of nmpconv: integer CNNs, the same bits everywhere"]
    return "\n".join([*lines[:at], *named, *lines[at + 1 :], numpy]) + f"\n\n{ABOUT}"


def _bill(content: bytes, files: list[str]) -> str:
    """The bill of materials of nmpconv, of what is in one of these files."""
    bill = json.loads(content)

    def inside(part: dict[str, Any]) -> bool:
        places = [place["location"] for place in part["evidence"]["occurrences"]]
        return any(fnmatchcase(name, place) for name in files for place in places)

    bill["components"] = [part for part in bill["components"] if inside(part)]
    refs = {part["bom-ref"] for part in bill["components"]}
    ours = bill["metadata"]["component"]
    rows = [row for row in bill["dependencies"] if row["ref"] in {ours["bom-ref"], *refs}]
    bill["dependencies"] = [
        row | {"dependsOn": [ref for ref in row["dependsOn"] if ref in refs]} if "dependsOn" in row else row
        for row in rows
    ]
    ours |= {"name": NAME, "purl": ours["purl"].replace("nmpconv", NAME)}
    bill["serialNumber"] = f"urn:uuid:{uuid5(NAMESPACE_URL, bill['serialNumber'] + NAME)}"
    return json.dumps(bill, indent=2)


def _record(files: dict[str, bytes], own: str) -> str:
    def row(name: str, data: bytes) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        return f"{name},sha256={digest},{len(data)}\n"

    return "".join(row(name, data) for name, data in files.items()) + f"{own},,\n"


if __name__ == "__main__":
    print(runtime(Path(sys.argv[1]), Path(sys.argv[2])))
