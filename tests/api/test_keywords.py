"""Every flag of a command is a keyword of its function: same name, same default, same choices."""

from __future__ import annotations

import inspect
import math
from enum import Enum
from keyword import iskeyword
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

import numpy as np
import pytest
from typer.models import OptionInfo

import nmpconv
from nmpconv.api.keyword_checks import BOUNDS, FREE, check, forgiving, kind_of, plain
from nmpconv.base.summary import Summary
from nmpconv.cli import whole_app
from nmpconv.cli.flags import OLDER
from nmpconv.errors import UsageError, as_keywords

COMMANDS = {
    "convert": "convert",
    "eval": "evaluate",
    "bisect": "bisect",
    "inspect": "inspect",
    "bench": "bench",
    "bundle": "bundle",
    "export": "export",
    "report": "html_report",
    "page": "page",
    "init": "init",
    "build": "build",
}
# Flags that say what is printed, or where to: a program has the result in hand.
PRINTED = {
    "convert": {"output", "json"},  # Converted.save
    "eval": {"json"},
    "bisect": {"json"},
    "inspect": {"tensors", "memory", "json"},
    "bench": {"json"},
    "bundle": {"json"},
    "export": {"output", "json"},  # the function returns the bytes
    "report": {"output", "json"},  # the function returns the text
    "page": {"output", "json"},  # the function returns the text
    "init": {"output", "json"},  # the function returns the text
    "build": {"json"},
}
TALK = {"quiet", "verbose", "no_color"}  # of every command
# Keywords without a flag.
OURS = {"model", "file", "files", "folder", "project_file", "data"}
OURS |= {"example_inputs", "journal", "progress", "title", "widths"}


class Flag(NamedTuple):
    default: Any
    choices: list[str]
    bounds: tuple[float | None, float | None]


def flags(command: str) -> dict[str, Flag]:
    """The options of a command by the keyword that each is to be."""
    callback = next(known.callback for known in whole_app().registered_commands if known.name == command)
    assert callback is not None
    kinds = inspect.get_annotations(callback, eval_str=True)
    found = {}
    for parameter in inspect.signature(callback).parameters.values():
        kind, option = kinds[parameter.name].__origin__, kinds[parameter.name].__metadata__[0]
        if isinstance(option, OptionInfo):
            written = (option.default, *(option.param_decls or ()))  # typer calls the first one the default
            long = [text.split("/")[0] for text in written if isinstance(text, str) and text.startswith("--")]
            name = long[0].lstrip("-").replace("-", "_") if long else parameter.name
            name += "_" * iskeyword(name)
            enums = [one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, Enum)]
            choices = [member.value for one in enums for member in one]
            found[name] = Flag(parameter.default, choices, (option.min, option.max))
    return found


def keywords(command: str) -> dict[str, Any]:
    """Keyword to default of the function that a command is."""
    signature = inspect.signature(getattr(nmpconv, COMMANDS[command]))
    return {name: parameter.default for name, parameter in signature.parameters.items()}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_a_keyword(command: str) -> None:
    names = set(flags(command))
    assert PRINTED[command] | TALK <= names
    assert names - PRINTED[command] - TALK == set(keywords(command)) - (OURS - names)


@pytest.mark.parametrize("command", COMMANDS)
def test_defaults_are_the_same(command: str) -> None:
    ours = keywords(command)
    given = {name: flag.default for name, flag in flags(command).items() if flag.default is not inspect.Parameter.empty}
    plain = {name: getattr(default, "value", default) for name, default in given.items() if name in ours}
    assert {name: ours[name] for name in plain} == plain


def parts(kind: Any) -> tuple[Any, ...]:
    """Kinds that an annotation is a union of."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


@pytest.mark.parametrize("command", COMMANDS)
def test_choices_are_the_same(command: str) -> None:
    function = getattr(nmpconv, COMMANDS[command])
    for name, flag in flags(command).items():
        if flag.choices:
            allowed = [value for one in parts(kind_of(function, name)) for value in get_args(one)]
            assert [value for value in allowed if isinstance(value, str)] == flag.choices, name
            assert {str(value) for value in allowed} == set(flag.choices), name


@pytest.mark.parametrize("command", COMMANDS)
def test_bounds_are_the_same(command: str) -> None:
    found = flags(command)
    bounded = {name: flag.bounds for name, flag in found.items() if flag.bounds != (None, None)}
    assert {name: BOUNDS[name] for name in BOUNDS if name in found} == bounded


def test_older_names_are_keywords_still() -> None:
    @forgiving(old="new")
    def function(new: int = 0) -> int:
        return new

    assert function(old=3) == function(new=3) == 3  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="old was renamed new; give only new"):
        function(old=3, new=3)  # type: ignore[call-arg]
    assert [OLDER[name.replace("_", "-")] for name in ("calib_limit", "input")] == ["limit", "data"]
    with pytest.raises(UsageError, match="0 is not allowed; allowed: 1 and more") as error:
        nmpconv.convert("model.onnx", calib_limit=0)  # type: ignore[call-arg]
    assert error.value.where == "limit"
    with pytest.raises(UsageError, match="input was renamed data"):
        nmpconv.bench("model.nmp", data="images", input="images")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", [*COMMANDS.values(), "load"])
def test_mistyped_keywords_name_the_nearest(name: str) -> None:
    """In every function, for each of its keywords."""
    function = getattr(nmpconv, name)
    for keyword in inspect.signature(function).parameters:
        typed = keyword[1::-1] + keyword[2:] + "s"
        with pytest.raises(TypeError, match=rf"{name}\(\) has no keyword '{typed}'(; did you mean '\w+'\?)?$") as error:
            function(**{typed: 1})
        assert len(keyword) < 4 or "did you mean" in str(error.value)
    with pytest.raises(TypeError, match=r"has no keyword 'zzz'$"):
        function(zzz=1)


def test_a_missing_argument_is_told_of_the_function() -> None:
    with pytest.raises(TypeError, match=r"^convert\(\) got wrong arguments: missing a required argument: 'model'$"):
        nmpconv.convert()  # type: ignore[call-arg]


WRONG: dict[str, list[Any]] = {
    "method": [None, "best"],
    "goal": [30],
    "max_ram": ["64q", "0.3k", "", "-1k", 0, 1.5],
    "limit": ["five", "5kB", "1.5", True, 0],
    "mean": ["1,2,3", [1, "a"], float("nan"), {1, "2"}],
    "test_vectors": [-1, 101],
    "range": [(1, 0), (1,), (0, 0), "0,1"],
    "labels": [5, [1]],
    "input_value": [{"x": "1"}, [1], {"x": [1, None]}],
    "input_shape": [{"x": "1x3"}, [1, 3], {1: (1, 3)}],
    "zero_points": ["no", 1],
    "progress": [3],
    "crop": [0, 2],
    "percentile": [float("nan"), 49],
    "save_profile": [3],
    "outputs": [3, {"a": 1}],
    "data": [5, {"x": 5}],
    "bits": ["7", 8.0],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_wrong_values_are_told(name: str, value: Any, samples: Path) -> None:
    with pytest.raises(UsageError) as error:
        nmpconv.convert(samples / "shapes" / "model.onnx", **{"data": samples / "shapes" / "calib", name: value})
    assert error.value.where.removeprefix("--") == name
    assert error.value.found
    assert error.value.allowed


def test_words_in_any_case_and_numbers_with_units() -> None:
    """The choices of every keyword, and every whole number: as flags and TOML files have them."""
    for name in COMMANDS.values():
        function = getattr(nmpconv, name)
        for keyword in set(inspect.signature(function).parameters) - OURS - FREE:
            kinds = parts(kind_of(function, keyword))
            words = [word for kind in kinds for word in get_args(kind) if isinstance(word, str)]
            for word in words:
                assert plain(function, {keyword: word.upper()}) == {keyword: word}, (name, keyword)
            if int in kinds and str not in kinds:
                k, most = 1024 if keyword == "max_ram" else 1000, BOUNDS.get(keyword, (0, None))[1] or math.inf
                text, number = ("2K", 2 * k) if most >= 2 * k else ("0.02k", 20)
                assert plain(function, {keyword: text}) == {keyword: number}, (name, keyword)
    assert plain(nmpconv.convert, {"labels": "TOP.txt", "limit": 5}) == {"labels": "TOP.txt", "limit": 5}


def test_numbers_and_lists_of_numpy_are_welcome() -> None:
    check(nmpconv.convert, {"mean": np.float32(3), "std": np.array([1.0, 2.0]), "limit": np.int64(3), "range": [0, 1]})
    check(nmpconv.convert, {"budget": "ram=64k", "outputs": ("a", "b"), "save_recipe": "r.toml", "bits": 8})


@pytest.mark.parametrize(
    "call",
    [
        lambda: nmpconv.load(5),  # type: ignore[arg-type]
        lambda: nmpconv.inspect(None),  # type: ignore[arg-type]
        lambda: nmpconv.evaluate(3, 4),  # type: ignore[arg-type]
        lambda: nmpconv.bundle("m.nmp", tensors=3),  # type: ignore[arg-type]
        lambda: nmpconv.bench("m.nmp", runs="three"),  # type: ignore[call-overload]
        lambda: nmpconv.html_report(5),  # type: ignore[arg-type]
        lambda: nmpconv.html_report("m.nmp", limit=0),
        lambda: nmpconv.convert(None),
    ],
)
def test_wrong_arguments_of_the_others(call: Any) -> None:
    with pytest.raises(UsageError) as error:
        call()
    assert error.value.found
    assert error.value.allowed


def test_texts_of_errors_name_keywords(samples: Path) -> None:
    """Those of the functions; the command line prints the parts of an error, with its flags."""
    with pytest.raises(UsageError, match=r"^strict and precise each refine bits 8 or auto") as error:
        nmpconv.convert(samples / "shapes" / "model.onnx", samples / "shapes" / "calib", strict=True, precise=True)
    assert error.value.message.startswith("--strict and --precise")
    assert as_keywords("give --no-levers, --max-ram 1k or --device", ("levers", "max_ram")) == (
        "give levers=False, max_ram 1k or --device"
    )
    names = "/data/--raw/m.onnx, --data.nmp and layer '--no-bias'"
    assert as_keywords(names) == names
    summary = Summary("Converted", "", warnings=["did you forget --mean and --std?"])
    assert "warning: did you forget mean and std?" in summary.html()


def test_the_flags_of_convert_are_found() -> None:
    found = flags("convert")
    assert {"data", "bits", "limit", "drop_channels", "mean", "dry_run"} <= set(found)
    assert "a16w8" in found["bits"].choices
