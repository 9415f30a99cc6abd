"""How Sphinx builds the documentation; `make docs` calls it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for site_parts

from s4d_torch import __version__

project = "s4d-torch"
copyright = "The s4d-torch developers"
release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.viewcode"]
extensions += ["site_parts"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 4
exclude_patterns = ["build"]
default_role = "code"

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 88

html_math_renderer = "mathml"  # of site_parts: no script, nothing from a network
html_theme = "furo"
html_title = f"s4d-torch {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
