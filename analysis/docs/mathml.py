"""Formulas as MathML, which browsers draw themselves: the pages need no network and no script."""

from typing import Any

from docutils import nodes
from docutils.utils.math import pick_math_environment
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def displayed(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on its own, with its number where it has one."""
    text = node.astext()
    environment = pick_math_environment(text)
    if environment.startswith("align"):
        text = rf"\begin{{{environment}}}{text}\end{{{environment}}}"
    writer.body.append('<div class="math-block">')
    if node["number"]:
        writer.body.append(f'<span class="eqno">({node["number"]})</span>')
    writer.body.append(tex2mathml(text, as_block=True))
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
