"""What Sphinx asks for: names, theme, and the extensions that the pages use."""

import gc
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import desim  # noqa: E402

gc.set_threshold(200_000)  # trees of pages are cycles, and they stay

project = "desim"
author = "the authors of desim"
copyright = f"2026, {author}"
version = release = desim.__version__

extensions = [
    "myst_parser",
    "sphinx_copybutton",
    "analysis.docs.mathml",
    "analysis.docs.generate",
]
exclude_patterns = ["_build", "README.md"]
nitpicky = False
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
smartquotes_action = "qe"  # -- begins an option, and is no dash
html_math_renderer = "mathml"

html_theme = "furo"
html_title = f"desim {version}"
html_static_path = ["_static"]
html_css_files = ["desim.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#00538a", "color-brand-content": "#00538a"},
    "dark_css_variables": {"color-brand-primary": "#6cb8f0", "color-brand-content": "#6cb8f0"},
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
