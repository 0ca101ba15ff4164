"""Subject of a report: a file, and what was measured of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from nmpconv.base.verdict import Footprint, Verdict
from nmpconv.conversion.report import Layer, Report
from nmpconv.exporters.html.charts import Bars
from nmpconv.exporters.html.worst_samples import Judged
from nmpconv.file.memory_map import Memory, memory
from nmpconv.file.reader import Model
from nmpconv.runtime import targets
from nmpconv.runtime.costs import footprint
from nmpconv.runtime.interpreter import OpTime
from nmpconv.runtime.targets import Needs


@dataclass(frozen=True)
class Subject:
    """name: of the file, for a person. report: of the conversion, where this was one. bars: by tensor, what was seen in
    it: floats in a conversion, else what the integers stand for. judged: samples that were run. times: seconds on this
    machine; they differ from run to run. footprint: of a run on the file's target, for the verdict.
    """

    name: str
    sha256: str
    model: Model
    memory: Memory | None
    ram: tuple[Needs, ...]
    footprint: Footprint
    report: Report | None = None
    bars: Mapping[str, Bars] = field(default_factory=dict)
    judged: Judged = field(default_factory=Judged)
    times: tuple[OpTime, ...] = ()
    command: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict of the conversion, where this was one; else on the samples that were run."""
        if self.report is not None:
            return self.report.verdict
        return Verdict(self.model.widths, self.judged.quality, self.footprint)

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*(self.report.warnings if self.report else ()), *self.judged.warnings)

    @property
    def layers(self) -> dict[str, Layer]:
        """By the name of the op."""
        return {} if self.report is None else {layer.name: layer for layer in self.report.layers}


def of_file(
    name: str,
    data: bytes,
    model: Model,
    *,
    report: Report | None = None,
    bars: Mapping[str, Bars] | None = None,
    judged: Judged | None = None,
    times: tuple[OpTime, ...] = (),
    command: str = "",
) -> Subject:
    """data, model: the file's bytes and contents."""
    target = model.metadata.get("target")
    plan = memory(model, targets.scratch(data, target))
    ram = tuple(targets.needs(data, machine) for machine in targets.MICROCONTROLLERS)
    digest = hashlib.sha256(data).hexdigest()
    needs = footprint(data, target)
    return Subject(name, digest, model, plan, ram, needs, report, bars or {}, judged or Judged(), times, command)
