"""libFuzzer targets of interpreter/tests: built, run on a corpus, and how much of the sources the corpus reaches.

The corpus of a target is what the repository has (`corpus/TARGET.zip`), with the small cases of every op for those
that take models, and what a run adds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from c_core import C99, PORTABLE, SANITIZE, compiled, library
from op_cases import BY_OP, CASES

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "hostile"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ops"))
import test_conv_add
import test_op_refusals
import test_op_rules
import test_overlap

from fuzz_inputs import small
from fuzz_inputs.guards import guards
from fuzz_inputs.talks import talks
from nmpconv.file import flatbuffer
from nmpconv.file.writer import to_bytes
from nmpconv.passes.memory import plan_memory

CORPUS = Path(__file__).parent / "corpus"
COMPILERS = ("clang-16", "clang-19", "clang")
SECONDS_OF_AN_INPUT = 20
MIB = 2048
FUZZER = ("-fsanitize=fuzzer",)
# Ten times as fast: what is written or read behind a buffer's end is seen, and a wrong result, but nothing else.
PLAIN = (*FUZZER, "-fno-sanitize-coverage=trace-cmp,trace-gep,trace-div,indirect-calls", "-O2", "-DNMP_CLOSED_PAGES")
BUILDS = {"plain": PLAIN, "sanitized": (*SANITIZE, *FUZZER)}
SANITIZED = 0.1  # of the time of a target
DONE = re.compile(r"Done (\d+) runs in (\d+) second")
COVERING = "clang-19"
OF_OPS = (test_op_refusals, test_op_rules, test_overlap, test_conv_add)  # modules with files that ops take or refuse
OPS = "interpreter/src/ops/"
BRANCH = re.compile(r"Branch \((\d+):(\d+)\): \[True: (\S+), False: (\S+)\]")
COUNTED = re.compile(r" *\d+\|[^|]*\|(.*)")
SIDES = ("true", "false")
COVERED = ("base/fb.c", "core/model.c", "core/plan_check.c", "core/states.c", "agent.c", "frame.c")


@dataclass(frozen=True)
class Target:
    """longest: bytes of an input. own: files of the firmware beside its own. models: whether its inputs are models
    (else bytes that decide)."""

    name: str
    longest: int
    own: tuple[str, ...] = ()
    models: bool = False


TARGETS = {
    target.name: target
    for target in (
        Target("model", 4096, models=True),
        Target("agent", 256, ("agent.c", "frame.c")),
        Target("frame", 640, ("frame.c",)),
        Target("image", 192),
    )
}


@dataclass(frozen=True)
class Run:
    """failed: what libFuzzer wrote about the input that it left in the folder."""

    target: str
    runs: int
    seconds: int
    corpus: int
    failed: str


def compiler() -> str:
    """The first clang that is there; '' for none."""
    return next((name for name in COMPILERS if shutil.which(name)), "")


def build(root: Path, folder: Path, flags: Sequence[str] = BUILDS["sanitized"], compiled_by: str = "") -> None:
    """The programs fuzz_TARGET. They have portable kernels: other tests compare those of other levels with these."""
    used, every = compiled_by or compiler(), (*C99, "-w", *PORTABLE, *flags)
    objects, firmware = folder / "objects", root / "interpreter" / "firmware"
    shutil.rmtree(objects, ignore_errors=True)
    objects.mkdir(parents=True)
    compiled(root, objects, used, *every)
    core = library(root, objects, used, every)
    tests = root / "interpreter" / "tests"
    for name, target in TARGETS.items():
        own = [tests / f"fuzz_{name}.c", tests / "memory.c", *(firmware / part for part in target.own)]
        core.program(folder / f"fuzz_{name}", "-DNMP_LIBFUZZER", f"-I{firmware}", *own, "-lm")


def models(folder: Path) -> list[Path]:
    """The small ones of `small.graphs`, one of many ops, and files that are refused."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for i, graph in enumerate(small.graphs()):
        data = to_bytes(graph, {})
        if len(data) <= small.BYTES:
            written.append(folder / f"{i:04}.nmp")
            written[-1].write_bytes(data)
    custom = min((to_bytes(plan_memory.run(case.graph), {}) for case in BY_OP["custom"]), key=len)
    more = {
        "custom": custom,
        "unknown": flatbuffer.seal(custom.replace(b"::Gate", b"::Gats")),
        "long": to_bytes(small.long(40), {}),
        **{f"guard{i:02}": data for i, (_, data, *_) in enumerate(guards())},
    }
    for name, data in more.items():
        written.append(folder / f"{name}.nmp")
        written[-1].write_bytes(data)
    return written


def op_files(folder: Path) -> None:
    """A model of every op case, files that break one rule of an op, and results that share bytes with inputs."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, case in enumerate(CASES):
        (folder / f"{i:05}.nmp").write_bytes(to_bytes(plan_memory.run(case.graph), {}))
    for i, data in enumerate(chain.from_iterable(module.files() for module in OF_OPS)):
        (folder / f"more{i:04}.nmp").write_bytes(data)


def corpus(target: Target, folder: Path) -> Path:
    """A folder that a run may add to."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = CORPUS / f"{target.name}.zip"
    if kept.is_file():
        with zipfile.ZipFile(kept) as archive:
            archive.extractall(folder)
    if target.models:
        models(folder)
    elif target.name == "agent":
        for i, talk in enumerate(talks(models(folder.parent / "models"))):
            (folder / f"talk{i:02}").write_bytes(talk)
    return folder


def run(program: Path, target: Target, folder: Path, seconds: float, given: Mapping[str, str]) -> Run:
    """folder: of the corpus; what fails is written beside it."""
    command = [program, f"-max_total_time={max(1, round(seconds))}", f"-timeout={SECONDS_OF_AN_INPUT}"]
    # Linux counts the memory of the starting process as this one's own: single allocations are limited instead.
    command += [
        "-rss_limit_mb=0",
        f"-malloc_limit_mb={MIB}",
        f"-max_len={target.longest}",
        f"-artifact_prefix={folder.parent}/{target.name}-",
        folder,
    ]
    ran = subprocess.run(
        command, capture_output=True, text=True, errors="replace", env={**os.environ, **given}, check=False
    )
    done = DONE.search(ran.stderr)
    failed = "" if ran.returncode == 0 and done else ran.stderr[-4000:]
    runs, took = (int(done[1]), int(done[2])) if done else (0, 0)
    return Run(target.name, runs, took, sum(1 for _ in folder.iterdir()), failed)


def minimise(program: Path, target: Target, folder: Path, given: Mapping[str, str]) -> int:
    """Writes the fewest inputs that reach as much to the repository's archive; how many there are."""
    least = folder.parent / f"{target.name}-least"
    shutil.rmtree(least, ignore_errors=True)
    least.mkdir()
    command = [program, "-merge=1", f"-max_len={target.longest}", least, folder]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **given})
    CORPUS.mkdir(exist_ok=True)
    known = {path.read_bytes() for path in models(folder.parent / "models")} if target.models else set()
    files = [path for path in sorted(least.iterdir()) if path.read_bytes() not in known]
    with zipfile.ZipFile(CORPUS / f"{target.name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in files:
            archive.writestr(zipfile.ZipInfo(file.name), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return len(files)


@dataclass(frozen=True)
class Coverage:
    """Coverage of one file by all corpora. branches: how many there are; left: those never taken, by the text where
    they begin, with how many are of one name; conditions: those that decide alone (MC/DC), and all.
    """

    branches: int
    left: Counter[str]
    conditions: tuple[int, int]


def coverage(root: Path, folder: Path, given: Mapping[str, str]) -> dict[str, Coverage]:
    """By file of COVERED, and of the ops, which also have all their cases and refusals.

    Raises FileNotFoundError without clang 19 and its tools, which count conditions.
    """
    op_files(folder / "ops")
    flags = (*BUILDS["sanitized"], "-fprofile-instr-generate", "-fcoverage-mapping", "-fcoverage-mcdc", "-DNDEBUG")
    build(root, folder / "covering", flags, COVERING)
    programs, profiles = [], []
    for target in TARGETS.values():
        programs.append(folder / "covering" / f"fuzz_{target.name}")
        profiles.append(folder / f"{target.name}.profraw")
        env = {**os.environ, **given, "LLVM_PROFILE_FILE": str(profiles[-1])}
        places = [folder / target.name, *[folder / "ops"] * target.models]
        subprocess.run([programs[-1], "-runs=0", "-rss_limit_mb=0", *places], check=True, capture_output=True, env=env)
    suffix = COVERING.removeprefix("clang")
    data = folder / "all.profdata"
    subprocess.run([f"llvm-profdata{suffix}", "merge", *profiles, "-o", data], check=True)
    objects = [word for program in programs[1:] for word in ("-object", str(program))]

    def told(how: Sequence[str], *sources: str) -> str:
        command = [f"llvm-cov{suffix}", *how, f"-instr-profile={data}", programs[0], *objects, *sources]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    found = {}
    for file in json.loads(told(("export", "-summary-only")))["data"][0]["files"]:
        path = file["filename"]
        _, _, op = path.partition(OPS)
        for name in (*COVERED, f"ops/{op}") if op.endswith(".c") else COVERED:
            if path.endswith(f"/{name}"):
                text = told(("show", "-show-branches=count", "-show-expansions"), path)
                branches, left = _branches(text, Path(path).read_text(encoding="utf-8").splitlines())
                mcdc = file["summary"]["mcdc"]
                found[name] = Coverage(branches, left, (mcdc["covered"], mcdc["count"]))
    return found


def _branches(shown: str, source: list[str]) -> tuple[int, Counter[str]]:
    """Number of all branches, and those never taken. One of a macro has the line that expands it for its name."""
    line, count, left = "", 0, Counter[str]()
    for text in shown.splitlines():
        if branch := BRANCH.search(text):
            own = text.startswith("  |  Branch")
            name = source[int(branch[1]) - 1][int(branch[2]) - 1 :] if own else line
            count += 2
            sides = zip(SIDES, branch.groups()[2:], strict=True)
            left.update(f"never {side}: {name}" for side, times in sides if times == "0")
        elif counted := COUNTED.fullmatch(text):
            line = counted[1].strip()
    return count, left
