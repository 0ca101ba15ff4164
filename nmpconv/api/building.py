"""nmpconv.build: the conversions that a project file describes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import nmpconv
from nmpconv.api import keyword_checks, project
from nmpconv.api.project import Gate, Measurements, Project, ProjectTarget
from nmpconv.base import verdict
from nmpconv.base.files import read_file, read_text, write_file
from nmpconv.base.progress import Progress, reporter, silent
from nmpconv.base.verdict import Verdict
from nmpconv.conversion.keywords import FLAGS
from nmpconv.device.simulator import COUNTED_ON, missing
from nmpconv.errors import DeviceError, InputError, NmpError, OutputError, UsageError, refusal

ENDINGS = ("nmp", "json", "html")  # of a target's files
SCHEMA = 1  # of the facts that are kept beside a file


@dataclass(frozen=True)
class Built:
    """Result of a target. path: of its file. sha256: of the file's bytes. fresh: it was made now, or else it was up to
    date. verdict: on the test data, or where there is none, on the conversion. warnings: of its conversion."""

    target: str
    path: Path
    sha256: str
    fresh: bool
    measured: Measurements
    gates: tuple[Gate, ...]
    verdict: Verdict
    warnings: tuple[str, ...] = ()

    @property
    def missed(self) -> tuple[Gate, ...]:
        """The gates that are not met."""
        return tuple(gate for gate in self.gates if not gate.met)


@keyword_checks.forgiving()
def build(
    project_file: str | PathLike[str] | None = None,
    *,
    force: bool = False,
    outside: bool = False,
    progress: Progress | bool = silent,
) -> list[Built]:
    """Converts every target of a project file that is not up to date, measures it, and compares with its gates.

    `nmpconv.api.project` says what is in a project file. Beside each file lie a report and what was measured.

    project_file: a file, or a folder with one; None: the current folder. force: make all targets anew. outside: files
    may be written outside of the project's folder. A gate that is missed raises nothing: see `Built.missed`. Raises
    InputError, UsageError, what `nmpconv.convert` raises, and DeviceError where instructions are to be counted and
    cannot be.

    For example:

        for built in nmpconv.build("nmpconv.toml"):
            print(built.target, built.verdict.sentence, built.missed)
    """
    keyword_checks.check(build, {"force": force, "progress": progress})
    if project_file is not None and not isinstance(project_file, str | PathLike):
        raise refusal(project_file, "the path of a project file or of its folder", "project_file")
    path = Path(project_file or ".")
    progress = reporter(progress)
    settings = project.read(project.find(path) if path.is_dir() else path)
    if not outside:
        _stay_inside(settings)
    package = project.of_folder(Path(nmpconv.__file__).parent, ".py", ".so", ".pyd")
    weights = _weights(settings.model)
    plans = [
        _plan(settings, target, project.digest(settings, target, package, weights), force)
        for target in settings.targets
    ]
    for plan in plans:
        if plan.known is None:
            _check(settings, plan.target)
    return [_build(settings, plan, progress) for plan in plans]


@dataclass(frozen=True)
class _Plan:
    """digest: of all that the target depends on. known: what is known of its file; None: it is to be made. board: that
    its instructions are to be counted on; '' for none."""

    target: ProjectTarget
    file: Path
    facts: Path
    digest: str
    known: _Known | None
    board: str


@dataclass(frozen=True)
class _Known:
    """Facts of a file: its measurements, the verdict on it, and the warnings of its conversion."""

    measured: Measurements
    verdict: Verdict
    warnings: tuple[str, ...]


def _stay_inside(settings: Project) -> None:
    """A project that somebody else wrote makes files in its own folder, and nowhere that a link leads to."""
    root, output = settings.path.parent, settings.output
    folders = [output, *output.parents]
    if not Path(os.path.realpath(output)).is_relative_to(os.path.realpath(root)):
        link = next((folder for folder in folders if folder != root and folder.is_symlink()), None)
        reason = (
            f", by the link {link}" if link and Path(os.path.abspath(output)).is_relative_to(root.absolute()) else ""
        )
        raise InputError(
            f"the output folder {output} is outside of the project's folder{reason}",
            where=str(settings.path),
            hint="name a folder in it, or allow others by --outside",
            found=str(output),
            allowed=f"a folder in {root}",
        )
    for target in settings.targets:
        for ending in ENDINGS:
            file = output / f"{target.name}.{ending}"
            if file.is_symlink():
                raise InputError(
                    "is a link; a build writes only files of the project",
                    where=str(file),
                    hint="remove it, or allow it by --outside",
                )


def _weights(model: Path) -> list[Path]:
    """Files beside the model that hold some of its tensors."""
    if b"location" not in read_file(model):  # the key that each such tensor has
        return []
    from nmpconv.frontend.read import external_files  # with it onnx

    return external_files(model)


def _plan(settings: Project, target: ProjectTarget, digest: str, force: bool) -> _Plan:
    file, facts = (settings.output / f"{target.name}.{ending}" for ending in ("nmp", "json"))
    earlier = None if force else _kept(file, facts, digest)
    known = earlier is not None and earlier.measured.instructions is not None
    return _Plan(target, file, facts, digest, earlier, "" if known else _board(settings, target))


def _board(settings: Project, target: ProjectTarget) -> str:
    """The simulated board that a gate needs; it is there."""
    if "max_instructions" not in target.gates:
        return ""
    board = COUNTED_ON.get(_machine(target))
    if board is None:
        message = f"the gate max_instructions of {target.name!r} needs a target that is simulated"
        raise InputError(message, where=str(settings.path), hint=f"target = one of {', '.join(COUNTED_ON)}")
    if lacking := missing(board):
        message = f"the gate max_instructions of {target.name!r} counts on the simulated board {board}"
        raise DeviceError(message, where=str(settings.path), hint=lacking)
    return board


def _machine(target: ProjectTarget) -> str:
    """Returns the machine, one of `nmpconv.runtime.targets`; '' where none is named."""
    return str(target.options.get("target") or "").lower()


def _check(settings: Project, target: ProjectTarget) -> None:
    from nmpconv.api.conversion import convert  # with it onnx and onnxruntime

    allowed = [name for name, flag in FLAGS.items() if flag.project]
    for key in target.options:
        if key not in allowed:
            hint = f"keywords of nmpconv.convert: {', '.join(allowed)}"
            raise InputError(f"{key!r} of {target.name!r} is no option", where=str(settings.path), hint=hint)
        try:
            keyword_checks.check(convert, keyword_checks.plain(convert, _plain({key: target.options[key]})))
        except UsageError as error:
            about = {"hint": error.hint, "found": error.found, "allowed": error.allowed}
            message = f"{key} of {target.name!r}: {error.message}"
            raise InputError(message, where=str(settings.path), **about) from None
    for key in ("stream", "state"):
        if target.options.get(key) and settings.test is not None:
            hint = "leave it out: calibration data that nothing is fitted to is measured then"
            message = f"[data] test has no meaning for {target.name!r}, which has a {key}"
            raise InputError(message, where=str(settings.path), hint=hint)


def _build(settings: Project, plan: _Plan, progress: Progress) -> Built:
    known = plan.known or _make(settings, plan.target, plan.file, progress)
    if plan.board:
        count = _instructions(plan.file, plan.board, progress)
        known = replace(known, measured=replace(known.measured, instructions=count))
    sha256 = hashlib.sha256(read_file(plan.file)).hexdigest()
    if known is not plan.known:
        facts = {"schema": SCHEMA, "digest": plan.digest, "sha256": sha256, **asdict(known)}
        write_file(plan.facts, f"{json.dumps(facts, indent=2)}\n".encode())
    gates = tuple(project.gates(plan.target, known.measured, settings.path))
    return Built(
        plan.target.name, plan.file, sha256, plan.known is None, known.measured, gates, known.verdict, known.warnings
    )


def _kept(file: Path, facts: Path, digest: str) -> _Known | None:
    """Returns the measurements of an earlier build, if its file is there and nothing that it depends on has changed."""
    if not (file.is_file() and facts.is_file()):
        return None
    try:
        known = json.loads(read_text(facts, "list of facts"))
        same = (known["schema"], known["digest"]) == (SCHEMA, digest)
        if same and known["sha256"] == hashlib.sha256(read_file(file)).hexdigest():
            measured, warnings, judgement = (
                Measurements(**known["measured"]),
                known["warnings"],
                verdict.of(known["verdict"]),
            )
            numbers = all(value is None or type(value) in (int, float) for value in asdict(measured).values())
            if numbers and isinstance(warnings, list) and all(isinstance(text, str) for text in warnings):
                return _Known(measured, judgement, tuple(warnings))
    except (NmpError, ValueError, TypeError, KeyError, AttributeError):  # not ours, or cut: made anew
        pass
    return None


def _make(settings: Project, target: ProjectTarget, file: Path, progress: Progress) -> _Known:
    from nmpconv.api.conversion import convert
    from nmpconv.api.evaluation import evaluate
    from nmpconv.runtime import targets

    data = _samples(settings.calibration)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder: {error.strerror}", where=str(file.parent)) from None
    options = {"levers": False, **_plain(target.options)}  # four more fits, for who asks for them
    report = file.with_suffix(".html")
    converted = convert(settings.model, data, report=report, title=file.name, progress=progress, **options)
    machine = _machine(target)
    ram = targets.needs(converted.data, machine).arena if machine else targets.most(converted.data)
    sizes = {"flash": len(converted.data), "ram": ram}
    doubts: tuple[str, ...] = ()
    reached = converted.verdict
    if settings.test is None:
        held = converted.report.held_out
        measured = Measurements(**sizes, sqnr=held and held.db, agreement=held and held.agreement)
    else:
        judged = evaluate(converted.data, _samples(settings.test), reference=settings.model, progress=progress)
        doubts, reached = judged.warnings, judged.verdict
        known = judged.top1 is not None and judged.reference_top1 is not None
        drop = judged.reference_top1 - judged.top1 if known else None  # type: ignore[operator]
        measured = Measurements(
            **sizes, sqnr=judged.mean_sqnr_db, agreement=judged.agreement, top1=judged.top1, drop=drop
        )
    converted.save(file)
    return _Known(measured, reached, (*converted.report.warnings, *doubts))


def _instructions(file: Path, board: str, progress: Progress) -> int:
    """Counts the instructions of a run on the same data each time; a simulated board counts them exactly."""
    from nmpconv.api.file_commands import bench

    measurement = bench(file, device=f"sim:{board}", runs=1, progress=progress)
    return measurement.counter.count(measurement.least)


def _samples(sources: Mapping[str, Path]) -> Any:
    """As convert and evaluate take them."""
    return sources[""] if "" in sources else dict(sources)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as the keywords have them."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
