"""Context of a conversion: what every stage may ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from nmpconv.base.files import read_file
from nmpconv.base.progress import Progress
from nmpconv.base.workers import Workers
from nmpconv.conversion import mixed_precision, recipes
from nmpconv.conversion.options import Options
from nmpconv.errors import UsageError
from nmpconv.evaluation.detection.decoders import Size
from nmpconv.evaluation.task_metrics import AP, Measure, open_measure
from nmpconv.graph.trace import Trace
from nmpconv.passes.quantize.widths import weight_bits

MeasureFactory = tuple[Callable[[], Measure], str]
"""Opens a task metric; the name that a journal knows it by."""


# Options with which a model's own integers stay as they are.
FAITHFUL = {
    "equalize": "none",
    "rounding": "nearest",
    "bias_correction": False,
    "amplify": False,
    "zero_points": False,
    "drop_channels": False,
}


def _as_given(options: Options) -> Options:
    """The options of --faithful. UsageError for those that would change the model's integers."""
    plain = Options()
    if options.bits not in ("8", "a16w8"):
        raise UsageError("--faithful keeps the model's bits; --bits is 8, or a16w8 for biases on finer sums of 16 bits")
    for name, value in {**FAITHFUL, "per_tensor": False, "drop_outliers": False}.items():
        if getattr(options, name) not in (value, getattr(plain, name)):
            raise UsageError(
                f"{name} {getattr(options, name)} changes the integers that --faithful keeps",
                where="--faithful",
                hint="leave one of them out",
            )
    changed: dict[str, Any] = dict(FAITHFUL)
    return replace(options, **changed)


def _check_amplify(options: Options) -> None:
    """UsageError where it does nothing: weights of 16 bits are fine enough, and who moves means corrects biases."""
    if options.amplify and (not options.bias_correction or weight_bits(str(options.bits)) == 16):
        raise UsageError("needs weights of 8 bits and corrected biases", where="--amplify", hint="leave it out")


def _check_fast(options: Options) -> None:
    """UsageError where --fast meets what needs several conversions."""
    for asked, flag in ((options.bits == "auto", "--bits auto"), (bool(options.levers), "--levers")):
        if options.fast and asked:
            raise UsageError(
                f"makes one conversion, and {flag} needs several",
                where="--fast",
                hint="leave one of them out",
            )


@dataclass(frozen=True)
class Context:
    """The model, the choices and the services of one conversion; stages change none of them.

    options: with the values of the recipe file; bits are "8" where `search` adds the int16 tensors. recipe_file: rules
    for single tensors and ops. search: goal and budgets of --bits auto. trace: verifies and writes the graph after each
    pass.
    """

    model: Path
    options: Options
    recipe_file: recipes.RecipeFile
    search: mixed_precision.Objective | None
    progress: Progress
    trace: Trace
    workers: Workers

    @staticmethod
    def of(model: Path, options: Options, progress: Progress, workers: Workers) -> Context:
        """Raises UsageError for options that contradict each other, and InputError for a wrong recipe file."""
        recipe_file, options = recipes.with_recipe(options)
        options = _as_given(options) if options.faithful else options
        _check_fast(options)
        _check_amplify(options)
        if options.drop_outliers and options.load_profile is not None:
            raise UsageError(
                "a profile has no peaks of single samples", where="--drop-outliers", hint="observe them, without it"
            )
        search = None
        if options.bits == "auto":
            search = mixed_precision.objective(options.goal, options.budget or (), options.target)
            options = replace(options, bits="8")
        elif options.goal is not None or options.budget:
            raise UsageError("a goal and a budget are for --bits auto")
        context = Context(model, options, recipe_file, search, progress, Trace(options.dump_ir), workers)
        context.measure((1, 1))  # a wrong decoder is reported before any work
        return context

    def measure(self, size: Size | None) -> MeasureFactory | None:
        """The task metric of the goal; None where the goal is none. UsageError where a decoder is missing or unknown.

        size: height and width of the first input's pictures.
        """
        goal, decoder = self.search.goal if self.search else None, self.options.decoder
        metric = mixed_precision.MEASURED[goal.kind][0] if goal and goal.kind in mixed_precision.MEASURED else None
        if decoder is not None and size is not None:
            open_measure(AP, decoder, size)
        if goal is None or metric is None:
            return None
        open_measure(metric, decoder, size)
        return partial(open_measure, metric, decoder, size), f"{goal.kind} {decoder or ''}"

    def recipe_bytes(self) -> bytes:
        """The recipe file as it is; empty without one."""
        return read_file(self.options.recipe) if self.options.recipe else b""
