"""Parts of the site besides its documents: the order of pages, links to folders, and what is generated from the code.

Directives:
    {commands}     every command of `nmpconv` with its flags, from the same definitions as --help
    {python}       a list of names: each with its signature, its docstring and a table of its parameters
    {exit-codes}   the codes of `nmpconv.errors`
    {json}         the keys of every --json, from the schemas in the folder that is named
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import nmpconv
from nmpconv.cli import whole_app
from nmpconv.conversion import option_types
from nmpconv.conversion.keywords import FLAGS
from nmpconv.errors import ExitCode

UNBROKEN = 18  # characters of code that fit beside others in a table on a phone
UNIT = re.compile(r"(?<=\d) (?=(?:[kKMG]i?B?|B|dB|%|ms|us|s|MAC|kMAC|MMAC)\b|%)")
MARKUP = re.compile(r"(`+[^`]*`+)|([\\*_\[\]<>|])")


def plain(text: str) -> str:
    """Text that is no Markdown, but for what is in backticks."""
    return MARKUP.sub(lambda match: match[1] or f"\\{match[2]}", text)


def table(columns: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(cell.replace("\n", " ") for cell in row) + " |"
    yield ""


class Generated(SphinxDirective):
    """Markdown that is made while the site is built."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(self.lines()), allow_section_headings=True)

    def lines(self) -> Iterator[str]:
        raise NotImplementedError


class Commands(Generated):
    def lines(self) -> Iterator[str]:
        whole = typer.main.get_command(whole_app())
        for name, command in whole.commands.items():  # type: ignore[attr-defined]
            yield from self.command(name, command)
            for inner, of_group in getattr(command, "commands", {}).items():
                yield from self.command(f"{name} {inner}", of_group)

    def command(self, name: str, command: Any) -> Iterator[str]:
        text, _, verbatim = inspect.cleandoc(command.help or "").partition("\b\n")
        yield from (f"## {name}", "", plain(text), "")
        if getattr(command, "commands", None):
            return
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        usage = " ".join(["nmpconv", name, *(a.metavar or a.name.upper() for a in arguments), "[OPTIONS]"])
        yield from ("```text", usage, "```", "")
        if verbatim:
            shown = [line for line in verbatim.splitlines() if line.strip() not in ("Examples:", "")]
            yield from ("```text", *(line.removeprefix("  ") for line in shown), "```", "")
        if arguments:
            rows = [[f"`{a.metavar or a.name.upper()}`", plain(a.help or "")] for a in arguments]
            yield from table(["Arguments", "meaning"], rows)
        panels: dict[str, list[Any]] = {}
        for param in command.params:
            if param.param_type_name == "option" and not param.hidden:
                panels.setdefault(param.rich_help_panel or "Options", []).append(param)
        for panel, params in panels.items():
            if panel != "Messages":
                yield from table([panel, "meaning"], [self.option(param) for param in params])

    def option(self, param: Any) -> list[str]:
        names = ", ".join(f"`{name}`" for name in [*param.opts, *param.secondary_opts])
        takes = "" if param.is_flag else f" `{param.metavar or kind(param.type_descriptor.annotation)}`"
        default = param.default
        shown = "" if default is None or default in (False, ()) else f"Default: `{getattr(default, 'value', default)}`."
        return [names + takes.replace("|", "\\|"), " ".join(part for part in (plain(param.help or ""), shown) if part)]


def kind(annotation: Any) -> str:
    """Values of a flag, as --help shows them."""
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return "|".join(choice.value for choice in annotation)
    names = {int: "INTEGER", float: "FLOAT", Path: "PATH"}
    return names.get(annotation, "TEXT")


class Python(Generated):
    def lines(self) -> Iterator[str]:
        for name in self.content:
            module, _, last = name.rpartition(".")
            yield from described(name, getattr(importlib.import_module(module), last))


def described(name: str, value: Any) -> Iterator[str]:
    """A function, or a class with its public methods."""
    yield from (f"## {name.rpartition('.')[2]}", "")
    yield from called(name, value)
    if not inspect.isclass(value):
        return
    for inner, member in vars(value).items():
        if inner.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        if not (member.__doc__ or ""):
            continue
        yield from (f"### {value.__name__}.{inner}", "")
        yield from called(inner, member)


def called(name: str, value: Any) -> Iterator[str]:
    """A signature, the docstring, and a table of the parameters that this says something of."""
    parameters = [] if isinstance(value, property) or is_plain_class(value) else parameters_of(value)
    yield from signature(name, value, parameters)
    prose, meanings = split(inspect.getdoc(value) or "", [parameter.name for parameter in parameters])
    yield from (*prose, "")
    rows = [
        [f"`{parameter.name}`", values(parameter.annotation), coded(default(parameter)), meaning]
        for parameter in parameters
        if (meaning := max(meanings.get(parameter.name, ""), plain(help_of(value, parameter.name)), key=len))
    ]
    if rows:
        yield from table(["field" if inspect.isclass(value) else "parameter", "values", "default", "meaning"], rows)


def is_plain_class(value: Any) -> bool:
    return inspect.isclass(value) and not is_dataclass(value)


def parameters_of(value: Any) -> list[inspect.Parameter]:
    return [parameter for parameter in inspect.signature(value).parameters.values() if parameter.name != "self"]


def signature(name: str, value: Any, parameters: list[inspect.Parameter]) -> Iterator[str]:
    """In one line; keywords of a long one are left to the table."""
    if isinstance(value, property):
        return
    if is_plain_class(value):
        yield from ("```python", f"from {value.__module__} import {value.__name__}" if "." in name else name, "```", "")
        return
    given = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    texts, keywords = [written(p) for p in given], [written(p) for p in parameters if p.kind is p.KEYWORD_ONLY]
    returns = "" if inspect.isclass(value) else inspect.signature(value).return_annotation
    result = "" if returns in ("", inspect.Signature.empty) else f" -> {returns}"
    for more in (["*", *keywords] if keywords else [], ["..."]):
        whole = f"{name}({', '.join([*texts, *more])}){result}"
        if len(whole) <= 88:
            break
    yield from ("```python", whole, "```", "")


def split(text: str, names: list[str]) -> tuple[list[str], dict[str, str]]:
    """The prose of a docstring, and what its `name: meaning` or `name, other: meaning` says of parameters."""
    prose, meanings = [], {}
    known = "|".join(map(re.escape, names)) or "(?!)"
    begin = re.compile(rf"(?:^|(?<=\. ))((?:{known})(?:, (?:{known}))*): ")
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("    "):
            prose += ["```python", *(line.removeprefix("    ") for line in paragraph.splitlines()), "```", ""]
            continue
        line = " ".join(paragraph.split())
        before, *parts = begin.split(line)
        for which, meaning in zip(parts[::2], parts[1::2], strict=True):
            meaning, raises, errors = meaning.partition(" Raises ")
            before += raises + errors
            meanings |= dict.fromkeys(which.split(", "), plain(meaning.strip()))
        prose += [plain(before.strip()), ""]
    return prose, meanings


def help_of(value: Any, name: str) -> str:
    """Help of the flag that is a keyword of `nmpconv.convert`."""
    return FLAGS[name].help if value is nmpconv.convert and name in FLAGS else ""


def values(annotation: Any) -> str:
    """The type, with the words of a Literal in place of its name."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    if annotation is inspect.Parameter.empty:
        return ""
    for name, kind in vars(option_types).items():
        if get_origin(kind) is Literal:
            text = re.sub(rf"\b{name}\b", " | ".join(map(repr, get_args(kind))), text)
    text = re.sub(r"Literal\[([^]]*)\]", lambda match: match[1].replace(", ", " | "), text)
    return coded(text)


def coded(text: str) -> str:
    """Text as code in a cell of a table."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def default(parameter: inspect.Parameter) -> str:
    """The default as one writes it; "" for none, and for a function that does nothing."""
    value = parameter.default
    return "" if value is parameter.empty or callable(value) else repr(value)


def written(parameter: inspect.Parameter) -> str:
    shown = default(parameter)
    return f"{parameter.name}={shown}" if shown else parameter.name


class ExitCodes(Generated):
    def lines(self) -> Iterator[str]:
        yield from table(["code", "meaning"], [[str(code.value), code.meaning] for code in ExitCode])


class Json(Generated):
    def lines(self) -> Iterator[str]:
        [folder] = self.content
        for path in sorted((Path(self.env.srcdir) / folder).glob("*.json")):
            self.env.note_dependency(str(path))
            schema = json.loads(path.read_text(encoding="utf-8"))
            yield from (f"## {schema['title']}", "", f"[{path.name}](/{folder}/{path.name})", "")
            yield from table(["key", "type", "meaning"], list(keys(schema)))


def keys(schema: dict[str, Any], before: str = "") -> Iterator[list[str]]:
    """A row for each key, those inside of others after them."""
    for name, inner in schema.get("properties", {}).items():
        always = name in schema.get("required", ())
        yield [
            f"`{before}{name}`",
            types(inner) + ("" if always else ", not always"),
            plain(inner.get("description", "")),
        ]
        yield from keys(inner, f"{before}{name}.")
        yield from keys(inner.get("items", {}), f"{before}{name}[].")
        if isinstance(inner.get("additionalProperties"), dict):
            yield from keys(inner["additionalProperties"], f"{before}{name}.*.")


def types(schema: dict[str, Any]) -> str:
    names = schema.get("type", "any")
    return " or ".join(names) if isinstance(names, list) else names


def with_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    for title, pages in app.config.navigation.get(page, {}).items():
        fence = [
            "",
            "",
            "```{toctree}",
            ":hidden:",
            f":caption: {title}",
            "",
            *(f"/{page_name}" for page_name in pages),
            "```",
            "",
        ]
        source[0] += "\n".join(line for line in fence if line != ":caption: ")


def without_folders(app: Sphinx, page: nodes.document) -> None:
    """A link to a folder is plain text: a Git host shows folders, the site does not."""
    here = Path(app.env.doc2path(app.env.docname)).parent
    for node in list(page.findall(pending_xref)):
        if (here / node["reftarget"]).is_dir():
            node.replace_self(node.children)


def unbroken(app: Sphinx, doctree: nodes.document) -> None:
    """Keeps a number and its unit in a cell together, and a flag: lines break in neither."""
    for cell in doctree.findall(nodes.entry):
        for text in list(cell.findall(nodes.Text)):
            if UNIT.search(text):
                text.parent.replace(text, nodes.Text(UNIT.sub("\u00a0", text)))
    for code in doctree.findall(nodes.literal):
        if len(code.astext()) <= UNBROKEN and " " not in code.astext():
            code["classes"].append("unbroken")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("navigation", {}, "env")
    for name, directive in {"commands": Commands, "python": Python, "exit-codes": ExitCodes, "json": Json}.items():
        app.add_directive(name, directive)
    app.connect("source-read", with_navigation)
    app.connect("doctree-read", without_folders)
    app.connect("doctree-read", unbroken)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
