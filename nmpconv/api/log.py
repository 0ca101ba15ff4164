"""The logger that notes and warnings go to."""

from __future__ import annotations

import logging

log = logging.getLogger("nmpconv")
log.addHandler(logging.NullHandler())  # nothing is printed unless a program asks for it
