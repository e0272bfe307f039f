"""Formulas as MathML, which browsers draw themselves: the pages need no network and no script."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import pick_math_environment
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

# docutils puts the index of an accented letter below it, where the accent's base belongs
ACCENT = r'<munderover>\s*(<mi.*?</mi>)\s*(.*?)\s*(<mo stretchy="false">.</mo>)\s*</munderover>'
POWER = r"(<mrow>.*?</mrow>|<m\w+[^>]*>[^<]*</m\w+>)"
RAISED = re.compile(rf"<msup>\s*{ACCENT}\s*{POWER}\s*</msup>", re.DOTALL)
PLAIN = re.compile(ACCENT, re.DOTALL)


def drawn(formula: str, displayed: bool = False) -> str:
    """A formula as MathML."""
    written = tex2mathml(formula, displayed)
    written = RAISED.sub(r"<msubsup><mover>\1\3</mover>\2\4</msubsup>", written)
    return PLAIN.sub(r"<msub><mover>\1\3</mover>\2</msub>", written)


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(drawn(node.astext()))
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
    writer.body.append(drawn(text, displayed=True))
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
