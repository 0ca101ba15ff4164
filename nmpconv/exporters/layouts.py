"""Build systems that a bundle can be a package of; loads nothing."""

from __future__ import annotations

from typing import Literal, get_args

Layout = Literal["plain", "cmake", "arduino", "platformio", "zephyr", "idf", "cmsis-pack"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
USUAL: tuple[Layout, ...] = ("cmake", "arduino", "platformio")  # in one folder, where none is asked for
