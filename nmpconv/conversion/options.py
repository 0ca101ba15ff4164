"""What a person chooses for a conversion, by flags and by a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from nmpconv.conversion import recipes
from nmpconv.errors import UsageError
from nmpconv.ir import Preprocess

# Options that are not in the file as they were given: files, what has a place of its own, and what "auto" may stand
# for; the recipe has what came of that.
NOT_KEPT = {"dump_ir", "load_profile", "save_profile", "recipe", "save_recipe", "labels", "max_pixels", "preprocess"}
NOT_KEPT |= {"goal", "decoder", "budget", "journal", "levers", "workers"}
NOT_KEPT |= {"target", "equalize", "rounding", "zero_points"}


@dataclass(frozen=True)
class Options:
    """What a person can choose; the command line's flags have the same names.

    bits: "8", "16", "a16w8" or "auto": 8, and 16 where goal and budget (see `nmpconv.conversion.mixed_precision`) want
    it. journal: a file that keeps what "auto" has measured. widths: "default", "strict" or "precise". method: "max",
    "mse", "kl" or "percentile". equalize: "auto", "none", "scalar" or "vector". rounding: "auto", "nearest" or "gptq".
    bias_bits: 0 for the narrowest. zero_points: let one-sided int8 tensors fill the type. drop_channels: leave out
    those that no result depends on. max_ram: bytes of activations, or of all of a run where the target is a
    microcontroller. target: of `nmpconv.runtime.targets`; the memory plan is made for it. stream: "axis=2,hop=4" for a
    step, see `passes.stream`. state: "output=input" each, see `passes.quantize.recurrent_states`. audio: the front end
    of .wav files, see `data.audio`. preprocess: for image inputs, by input name or one for all. outputs: where to cut
    the graph. recipe: a file that has these choices, and choices for single tensors and ops. save_recipe: a file to
    write what was decided to. levers: measure what would help most. workers: what fits, see `nmpconv.base.workers`;
    they change no file.
    """

    bits: str = "8"
    widths: str = "default"
    per_tensor: bool = False
    method: str = "mse"
    percentile: float = 99.99
    equalize: str = "auto"
    rounding: str = "auto"
    bias_correction: bool = True
    bias_bits: int = 0
    zero_points: bool = True
    drop_channels: bool = True
    max_ram: int | None = None
    target: str | None = None
    stream: str | None = None
    state: tuple[str, ...] = ()
    audio: str | None = None
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    preprocess: Mapping[str, Preprocess] | Preprocess | None = None
    labels: tuple[str, ...] = ()
    test_vectors: int = 0
    dump_ir: Path | None = None
    load_profile: Path | None = None
    save_profile: Path | None = None
    goal: str | None = None
    decoder: str | None = None
    budget: tuple[str, ...] = ()
    journal: Path | None = None
    recipe: Path | None = None
    save_recipe: Path | None = None
    levers: bool = False
    workers: str | None = None
    max_images: int | None = None
    max_pixels: int | None = None

    def preprocess_of(self, name: str) -> Preprocess | None:
        if self.preprocess is None or isinstance(self.preprocess, Preprocess):
            return self.preprocess
        return self.preprocess.get(name)


def with_recipe(options: Options) -> tuple[recipes.RecipeFile, Options]:
    """The recipe's file, and the options with what it says; UsageError where a flag says something else."""
    if options.stream is not None and options.state:
        raise UsageError("a stream keeps states of its own", where="--state", hint="leave --stream or --state out")
    if options.recipe is None:
        return recipes.RecipeFile(), options
    found, plain = recipes.load(options.recipe), Options()
    for key, value in found.convert.items():
        given = getattr(options, key)
        if given not in (getattr(plain, key), value):
            raise UsageError(
                f"{key} is {given} by a flag, and {value} by {options.recipe}", hint="leave one of them out"
            )
    return found, replace(options, **found.convert)
