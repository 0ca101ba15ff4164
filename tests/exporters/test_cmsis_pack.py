"""The pack of a bundle, built as its .pdsc tells a tool to: its sources, its include folders, a template as user code.

The tools of Open-CMSIS-Pack are in no registry. What they read of a component is read here by the same rules, and the
program runs in QEMU.
"""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

import nmpconv

HERE = Path(__file__).parent
RAN = "the outputs are those of the test vector\n"
STARTUP = """extern void _start(void);
static void reset(void) {
  *(volatile unsigned *)0xe000ed88u |= 0xfu << 20; /* CPACR: floats and vectors */
  __asm__ volatile("dsb\\nisb");
  _start();
}
__attribute__((section(".vectors"), used)) static const struct {
  unsigned stack;
  void (*reset)(void);
} vectors = {STACK, reset};
"""
MACHINES = {  # flags, QEMU's machine, RAM, a part of a function's name that only this level has
    "M4": (["-mcpu=cortex-m4"], "mps2-an386", 0x20000000, "nmp_conv_dsp"),
    "M55": (["-mcpu=cortex-m55", "-mfloat-abi=hard"], "mps3-an547", 0x21000000, "nmp_conv_mve"),
}


def is_met(root: ElementTree.Element, condition: str | None, project: dict[str, str]) -> bool:
    """Checks a condition by the rules of packs: all of `require`, one of `accept`, none of `deny`."""
    if condition is None:
        return True
    [found] = [one for one in root.iter("condition") if one.get("id") == condition]

    def holds(expression: ElementTree.Element) -> bool:
        return all(
            is_met(root, value, project) if key == "condition" else project.get(key) == value
            for key, value in expression.attrib.items()
        )

    accepted = [holds(one) for one in found.iter("accept")]
    required = all(holds(one) for one in found.iter("require"))
    return required and (any(accepted) or not accepted) and not any(holds(one) for one in found.iter("deny"))


class Component:
    """Files and folders that a tool takes of the only component of a pack."""

    def __init__(self, pack: Path, project: dict[str, str]) -> None:
        [described] = pack.glob("*.pdsc")
        root = ElementTree.fromstring(described.read_text())
        [component] = root.iter("component")
        assert is_met(root, component.get("condition"), project)
        files = [one for one in component.iter("file") if is_met(root, one.get("condition"), project)]
        names = {kind: [one.get("name") or "" for one in files if one.get("category") == kind] for kind in CATEGORIES}
        templates = {one.get("name") or "" for one in files if one.get("attr") == "template"}
        folders = [*names["include"], *(str(PurePosixPath(name).parent) for name in names["header"])]
        self.sources = [pack / name for name in names["source"] if name not in templates]
        self.templates = {PurePosixPath(name).stem: pack / name for name in templates}
        self.include = list(dict.fromkeys(f"-I{(pack / folder).resolve()}" for folder in folders))


CATEGORIES = ("include", "header", "source")


def test_conditions_are_those_of_packs() -> None:
    text = """<c><condition id="a"><accept T="x"/><accept T="y"/></condition>
    <condition id="b"><require condition="a"/><deny D="z"/></condition></c>"""
    root = ElementTree.fromstring(text)
    assert is_met(root, "a", {"T": "y"}) and not is_met(root, "a", {"T": "z"})
    assert is_met(root, "b", {"T": "x"}) and not is_met(root, "b", {"T": "x", "D": "z"})


@pytest.mark.slow
@pytest.mark.parametrize("cpu", MACHINES)
def test_a_pack_is_built_by_its_description(
    cpu: str, model: Path, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    """Two models; none but the listed files are compiled, and user code sees none but the listed folders."""
    flags, machine, ram, kernel = MACHINES[cpu]
    gcc = [need_tool("arm-none-eabi-gcc"), "-mthumb", *flags]
    qemu, nm = need_tool("qemu-system-arm"), need_tool("arm-none-eabi-nm")
    pack, project, objects = tmp_path / "pack", tmp_path / "project", tmp_path / "objects"
    nmpconv.bundle({"kws": model, "vww": model}, as_="cmsis-pack", output=pack)
    component = Component(pack, {"Tcompiler": "GCC"})
    assert sorted(component.templates) == ["buffer", "device", "measure", "test_vector"] and len(component.include) == 1
    project.mkdir(), objects.mkdir()
    shutil.copy(component.templates["test_vector"], project / "main.c")  # as a tool copies it: to be edited
    (project / "startup.c").write_text(STARTUP)
    strict = ["-std=c99", "-Os", "-Wall", "-Wextra", "-Werror", "-ffunction-sections", "-fdata-sections"]
    subprocess.run([*gcc, *strict, *component.include, "-c", *component.sources], check=True, cwd=objects)
    link = ["--specs=rdimon.specs", f"-DSTACK={ram + 0x100000}u", f"-Wl,--gc-sections,--defsym=DATA={ram}"]
    own = ["-T", HERE / "cortex_m.ld", project / "startup.c", project / "main.c"]
    program = tmp_path / "program.elf"
    command = [*gcc, *strict, *link, *component.include, *own, *sorted(objects.glob("*.o")), "-o", program]
    subprocess.run(command, check=True)
    listed = subprocess.run([nm, program], capture_output=True, text=True, check=True).stdout
    assert kernel in listed
    quiet = ["-nographic", "-monitor", "none", "-serial", "none", "-semihosting"]
    ran = subprocess.run([qemu, "-M", machine, *quiet, "-kernel", program], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (ran.stdout + ran.stderr).count(RAN) == 2
