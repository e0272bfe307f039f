"""Writes the parts of all pages anew: python -m analysis.docs.generate."""

from pathlib import Path

from analysis.docs.generate import completed

DOCS = Path(__file__).resolve().parents[1]


def main() -> None:
    """Write the pages whose parts have changed, and name them."""
    for path in sorted(DOCS.rglob("*.md")):
        if "_build" in path.parts:
            continue
        text = path.read_text("utf-8")
        page = path.relative_to(DOCS).with_suffix("").as_posix()
        if (anew := completed(page, text)) != text:
            path.write_text(anew, "utf-8")
            print(page)


if __name__ == "__main__":
    main()
