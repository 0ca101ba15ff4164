"""LiteRT and ONNX Runtime on an emulated AArch64: their wheels under a Python of Debian, all of it in build/.

apt unpacks the packages into a folder, with lists of its own, so that nothing is installed on this machine. pip takes
the wheels for that Python. XNNPACK and MLAS choose kernels by the CPU's name: QEMU shows programs the files of the
folder first, so /proc/cpuinfo there is that of the CPU that is emulated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from aarch64_cycles import Counts, counts_of
from peers import models
from peers.job import Job

BENCH = Path(__file__).resolve().parent
ENGINES = ["litert", "onnxruntime"]
WHEELS = {"litert": "ai-edge-litert", "onnxruntime": "onnxruntime"}
MODELS = {"MobileNetV2": "MobileNetV2", "SqueezeNet": "SqueezeNet 1.1"}  # others: "MLPerf Tiny " and the name
PACKAGES = ("python3.11-minimal", "libpython3.11-stdlib", "libstdc++6")
PLATFORMS = ("manylinux_2_17", "manylinux2014", "manylinux_2_27", "manylinux_2_28", "manylinux_2_34")
RUNS = 2  # N
PREPARE = """
import sys
from peers.job import Job, engine
job = Job.from_text(sys.argv[1])
engine(job.engine).prepare(job)
"""
CORES = 4


@dataclass(frozen=True)
class Cpu:
    """emulated: what QEMU calls it; level: ours there; scheduled: what llvm-mca calls it; the rest: /proc/cpuinfo."""

    emulated: str
    level: str
    scheduled: str
    part: str
    variant: str
    revision: int
    features: str

    def info(self) -> str:
        lines = (
            f"Features\t: {self.features}",
            "CPU implementer\t: 0x41",
            "CPU architecture: 8",
            f"CPU variant\t: {self.variant}",
            f"CPU part\t: {self.part}",
            f"CPU revision\t: {self.revision}",
        )
        return "".join("\n".join((f"processor\t: {core}", "BogoMIPS\t: 108.00", *lines, "\n")) for core in range(CORES))


V8 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
V82 = f"{V8} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"
CPUS = {
    "A53": Cpu("cortex-a53", "neon", "cortex-a53", "0xd03", "0x0", 4, V8),
    "A72": Cpu("cortex-a72", "neon", "cortex-a72", "0xd08", "0x0", 3, V8),
    "A76": Cpu("cortex-a76", "neondot", "cortex-a76", "0xd0b", "0x4", 1, V82),
    # An A710 without its SVE and MTE, as in a Cortex-A of 8.6.
    "i8mm": Cpu("max,sve=off,sme=off", "i8mm", "cortex-a710", "0xd47", "0x2", 0, f"{V82} i8mm bf16"),
}


class Peers:
    """counts() of what is unpacked and prepared in ``folder``. reuse: counts of the run before are taken. Threads may
    call it at once.
    """

    def __init__(
        self, folder: Path, plugin: Path, zoo: Path, prepared: Path, python: Path, *, reuse: bool = False
    ) -> None:
        self.folder = folder
        self.plugin = plugin
        self.zoo = zoo
        self.prepared = prepared
        self.python = python
        self.known = folder / "peers.json"
        if not (reuse and self.known.is_file()):
            self.known.write_text("{}")
        self.root, self.wheels = _unpacked(folder), _installed(folder)
        self._knowing, self._preparing = threading.Lock(), threading.Lock()
        self._roots = {name: self._root_of(name, cpu) for name, cpu in CPUS.items()}

    def counts(self, engine: str, net: str, bits: str, cpu: str) -> Counts | None:
        """Figures of one inference; None, with a message, where the engine cannot run the net."""
        key = f"{engine} {net} {bits} {cpu}"
        with self._knowing:
            figures = json.loads(self.known.read_text()).get(key)
        if figures is None:
            try:
                with self._preparing:
                    model = self._model(engine, net, bits)
                figures = asdict(self._count(model, cpu))
            except (RuntimeError, subprocess.CalledProcessError) as error:
                print(f"{key} is left out: {error}", file=sys.stderr)
                return None
            with self._knowing:
                known = json.loads(self.known.read_text()) | {key: figures}
                self.known.write_text(json.dumps(known, indent=1) + "\n")
        return Counts(**figures)

    def _root_of(self, name: str, cpu: Cpu) -> Path:
        """The unpacked root with the /proc/cpuinfo of a CPU."""
        root = self.folder / "roots" / name
        (root / "proc").mkdir(parents=True, exist_ok=True)
        (root / "proc" / "cpuinfo").write_text(cpu.info())
        for place in self.root.iterdir():
            if place.name != "proc" and not (root / place.name).exists():
                (root / place.name).symlink_to(place.resolve())
        return root

    def _model(self, engine: str, net: str, bits: str) -> Path:
        """Prepared as for make bench, by the engine here."""
        name = MODELS.get(net, f"MLPerf Tiny {net}")
        model = models.prepare(name, self.zoo, self.prepared / name.replace(" ", "-").lower())
        job = Job(engine, str(model.path), str(model.samples), str(model.path.parent / engine), bits, 1)
        if engine == "onnxruntime" and bits == "float32":
            return model.path
        target = job.file(".tflite" if engine == "litert" else ".onnx")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(BENCH), str(BENCH.parent)))}
            subprocess.run([self.python, "-c", PREPARE, job.to_text()], check=True, env=environment)
        return target

    def _count(self, model: Path, name: str) -> Counts:
        cpu = CPUS[name]
        emulator = ["qemu-aarch64", "-L", self._roots[name], "-cpu", cpu.emulated, "-plugin", self.plugin]
        program = [self.root / "usr" / "bin" / "python3.11", BENCH / "aarch64" / "peer.py", model, str(RUNS)]
        done = subprocess.run(
            [*emulator, *program],
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONPATH": str(self.wheels), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-300:])
        counts = counts_of(done.stderr, RUNS, cpu.scheduled)
        return Counts(counts.instructions, counts.cycles, done.stdout.split()[-1])


def _unpacked(folder: Path) -> Path:
    """Debian's Python for AArch64 and what it needs, by apt with lists of its own."""
    root, apt = folder / "root", folder / "apt"
    if (root / "unpacked").is_file():
        return root
    archives = apt / "cache" / "archives"
    for place in (apt / "lists" / "partial", archives / "partial", root):
        place.mkdir(parents=True, exist_ok=True)
    (apt / "status").write_text("")
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Dir::State::Lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "Debug::NoLocking": "1",
    }
    command = ["apt-get", "-q", *(f"-o{key}={value}" for key, value in settings.items())]
    subprocess.run([*command, "update"], check=True)
    take = ["install", "--download-only", "--yes", "--no-install-recommends"]
    subprocess.run([*command, *take, *PACKAGES], check=True)
    for package in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    (root / "unpacked").touch()
    return root


def _installed(folder: Path) -> Path:
    """The wheels of the versions in requirements.txt."""
    target, wanted = folder / "wheels", [*WHEELS.values(), "numpy"]
    if not (target / "installed").is_file():
        lines = (BENCH / "requirements.txt").read_text().splitlines()
        packages = [line for line in lines if line.split("==")[0] in wanted]
        platforms = [flag for platform in PLATFORMS for flag in ("--platform", f"{platform}_aarch64")]
        python = ["--python-version", "3.11", "--implementation", "cp", "--only-binary=:all:"]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", target, *platforms, *python, *packages], check=True)
        (target / "installed").touch()
    return target
