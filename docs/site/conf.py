"""The site of the documents: `make docs` builds it with Sphinx. The documents lie where they are read on a Git host.

The folder of all sources is the checkout, so a link means the same here and there. What is in the site, and in which
order, is `NAVIGATION`; a document that is not in it is an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(ROOT))

from nmpconv import __version__  # noqa: E402

HOME = "docs/index"
# By page: titles, and the pages under them.
navigation = NAVIGATION = {
    HOME: {
        "Tutorials": [
            "docs/tutorials/board",
            "docs/tutorials/detector",
            "docs/tutorials/audio",
            "docs/tutorials/accuracy",
            "docs/tutorials/training",
        ],
        "How to": [
            "docs/install",
            "docs/usage",
            "docs/mixed-precision",
            "docs/quantized-models",
            "docs/streams",
            "docs/python",
            "docs/reports",
            "docs/browser",
            "docs/firmware",
            "docs/boards",
            "docs/custom-ops",
            "docs/signing",
            "interpreter/firmware/PORTING",
            "interpreter/wasm/npm/README",
            "packaging/README",
        ],
        "Reference": [
            "docs/reference/cli",
            "docs/reference/api",
            "docs/reference/json",
            "docs/reference/tools",
            "docs/reference/limits",
            "OPS",
            "schema/FORMAT",
            "interpreter/firmware/PROTOCOL",
            "docs/glossary",
        ],
        "Explanation": [
            "docs/arithmetic",
            "docs/memory",
            "docs/conversion",
            "docs/memory-safety",
            "docs/proofs",
        ],
        "Internals": [
            "ARCHITECTURE",
            "docs/kernels",
            "docs/decisions/README",
        ],
        "Project": [
            "README",
            "docs/results",
            "docs/speed",
            "docs/architectures",
            "docs/seeded-nets",
            "samples/README",
            "CONTRIBUTING",
            "docs/releasing",
            "bench/README",
            "bench/ZOO",
            "SECURITY",
            "CHANGELOG",
        ],
    },
    "docs/decisions/README": {"": sorted(f"docs/decisions/{p.stem}" for p in ROOT.glob("docs/decisions/[0-9]*.md"))},
    "samples/README": {"": sorted(f"samples/{p.parent.name}/README" for p in ROOT.glob("samples/*/README.md"))},
}
PAGES = [HOME, *(page for parts in NAVIGATION.values() for pages in parts.values() for page in pages)]

project = "nmpconv"
author = "The nmpconv developers"
project_copyright = author
version = release = __version__
extensions = ["myst_parser", "site_pages"]
root_doc = HOME
include_patterns = [f"{page}.md" for page in PAGES]
exclude_patterns = [".*", "build", "dist", "nmpconv", "tests"]
myst_heading_anchors = 4
nitpicky = True
highlight_language = "none"
smartquotes = False  # two hyphens are two hyphens

html_theme = "furo"
html_title = f"nmpconv {__version__}"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_js_files = ["copy.js", "tabs.js"]
templates_path = [str(HERE / "templates")]
html_additional_pages = {"index": "redirect.html"}
html_copy_source = False
html_show_copyright = False
html_theme_options = {"top_of_page_buttons": []}
