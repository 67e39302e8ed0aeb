"""The report for the browser: one file with its styles, scripts and numbers, and no requests.

Charts are drawn by Vega-Lite, for three reasons.  Its scripts, which the Vega project maintains
and packs in vl-convert-python, take 0.9 MB of the file, where those of Plotly take 4.8 MB.  It
draws SVG with labels for screen readers, in colours that follow the styles of the page: dark,
light, print.  It can run without evaluating text as code, so the page forbids all but its scripts.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from drolearn.stress.palette import COLOURS, DARK_COLOURS
from drolearn.stress.sections import headlines, sections
from drolearn.stress.text import confidence, group_name

__all__ = ["page"]


def page(report: Any, tables: tuple[str, ...], title: str) -> str:
    """The text of the file."""
    jinja2, vega = _libraries()
    scripts = [_script(text) for text in (vega, _file("charts.js"), _file("report.js"))]
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.from_string(_file("template.html")).render(
        title=title,
        report=report,
        level=confidence(report.level),
        models=list(dict.fromkeys(report.curve["model"])),
        headlines=headlines(report),
        sections=sections(report),
        colours=list(zip(COLOURS, DARK_COLOURS, strict=True)),
        styles=_raw(_file("report.css")),
        scripts=[_raw(text) for text in scripts],
        hashes=[_hash(text) for text in scripts],
        data=_raw(_data(report, tables)),
        licences=_file("licences.txt"),
    )


@cache
def _libraries() -> tuple[Any, str]:
    """Jinja, and the scripts of Vega-Embed with all it needs, made once in a process."""
    try:
        import jinja2
        import vl_convert
    except ImportError as error:
        raise ImportError(
            f"The HTML report needs {error.name}. Install it with pip install 'drolearn[stress]'."
        ) from None
    return jinja2, vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def _file(name: str) -> str:
    return (files("drolearn.stress") / "page" / name).read_text(encoding="utf-8")


def _raw(text: str) -> Any:
    """Text of ours that the template must not escape."""
    from markupsafe import Markup

    return Markup(text)


def _script(text: str) -> str:
    """A script that cannot end its element early: in strings, "<\\/" is the same as "</"."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hash(script: str) -> str:
    """The hash by which the policy of the page allows a script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _data(report: Any, tables: tuple[str, ...]) -> str:
    """All tables as JSON without a character that means something in HTML."""
    content: dict[str, Any] = {}
    for name in tables:
        frame = getattr(report, name)
        if frame.empty:
            continue
        if "group" in frame:
            frame = frame.assign(group=frame["group"].map(group_name))
        content[name] = json.loads(
            frame.to_json(orient="split", index=False, double_precision=15, default_handler=str)
        )
    text = json.dumps(
        {"tables": content, "regret": report.regret, "level": report.level}, ensure_ascii=True
    )
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
