"""Sphinx: `scripts/check` builds these pages with warnings as errors, without the network."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "twinlog"
author = "the twinlog authors"
copyright = "the twinlog authors, Apache License 2.0"
release = version = installed_version("twinlog")

extensions = [
    "myst_parser",
    "sphinx_click",
    "options",
    "formats",
    "compatibility",
    "client_api",
    "tables",
    "ledger_tables",
    "logs",
    "metrics",
    "endpoints",
    "packages",
    "notebook",
    "reliability",
]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nitpicky = True

html_theme = "furo"
html_title = "twinlog"
html_show_copyright = False
