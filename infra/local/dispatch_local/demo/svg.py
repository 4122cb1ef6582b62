"""The timeline as a small SVG, for a page on a light or a dark background."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from dispatch_local.demo.timeline import Kind, Span, Timeline

WIDTH, LABEL, RIGHT, TOP = 960, 92, 20, 34
ROW, GAP, PAD = 22, 4, 16
LETTER = 6.4  # of 11 px type, on average
TICKS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1800, 3600)
TICKS_AT_MOST = 12

# Told apart without colour, too: by hatching, by the text inside, and by the row.
FILLS = {
    Kind.GATED: "#b9bec5",
    Kind.HELD: "#9a8fb5",
    Kind.QUOTA: "#f0cf73",
    Kind.CHECK: "#e8a66b",
    Kind.OLD_PODS: "#d9604f",
    Kind.STARTING: "#c4dbf2",
    Kind.RUNS: "#3f83c9",
    Kind.ENDS: "url(#ends)",
}
DARK = {Kind.RUNS, Kind.OLD_PODS, Kind.HELD}


def draw(timeline: Timeline) -> str:
    """Return the SVG document of what was seen so far."""
    begin = timeline.begin()
    length = max(timeline.end() - begin, 1.0)
    scale = (WIDTH - LABEL - RIGHT) / length
    parts, y, used = list[str](), TOP, set[Kind]()
    for track in timeline.tracks.values():
        rows = track.rows()
        used |= {span.kind for row in rows for span in row}
        parts.append(f'<text x="12" y="{y + 15}" font-weight="bold">{escape(track.title)}</text>')
        parts.append(f'<text x="12" y="{y + ROW + GAP + 15}" fill="#666">pods</text>')
        for row in rows:
            parts += (each for span in row for each in _bar(span, begin, begin + length, scale, y))
            y += ROW + GAP
        y += PAD
    axis = list(_axis(length, scale, y))
    legend = list(_legend([kind for kind in Kind if kind in used], y + 26))
    height = y + 26 + ROW
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="system-ui,sans-serif" font-size="11" fill="#222">',
            "<title>What each job waited for, and which execution ran when</title>",
            '<defs><pattern id="ends" width="6" height="6" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><rect width="6" height="6" fill="#8db8e3"/>'
            '<rect width="3" height="6" fill="#3f83c9"/></pattern></defs>',
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#fff"/>',
            *axis,
            *parts,
            *legend,
            "</svg>\n",
        ]
    )


def words(span: Span) -> str:
    """Return what a span is called: an execution by its A."""
    return {Kind.RUNS: f"A={span.a}", Kind.ENDS: f"A={span.a}, told to end"}.get(span.kind, str(span.kind))


def _bar(span: Span, begin: float, now: float, scale: float, y: int) -> Iterator[str]:
    end = now if span.end is None else span.end
    x, width = LABEL + (span.begin - begin) * scale, max((end - span.begin) * scale, 1.5)
    title = f"{words(span)}: {end - span.begin:.1f} s"
    yield (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" rx="2" fill="{FILLS[span.kind]}">'
        f"<title>{escape(title)}</title></rect>"
    )
    said = words(span)
    if span.kind == Kind.ENDS:
        said = str(span.kind)
    if len(said) * LETTER + 8 < width:
        if span.kind == Kind.ENDS:
            yield f'<rect x="{x + 4:.1f}" y="{y + 4}" width="{len(said) * LETTER:.0f}" height="14" rx="2" fill="#fff"/>'
        colour = ' fill="#fff"' if span.kind in DARK else ""
        yield f'<text x="{x + 6:.1f}" y="{y + 15}"{colour}>{escape(said)}</text>'


def _axis(length: float, scale: float, y: int) -> Iterator[str]:
    step = next((tick for tick in TICKS if length / tick <= TICKS_AT_MOST), TICKS[-1])
    for number in range(int(length / step) + 1):
        x = LABEL + number * step * scale
        yield f'<path d="M{x:.1f} {TOP - 8}V{y - 6}" stroke="#e4e4e4"/>'
        unit = " s" if number == 0 else ""
        yield f'<text x="{x:.1f}" y="{TOP - 14}" fill="#666" text-anchor="middle">{number * step}{unit}</text>'


def _legend(kinds: list[Kind], y: int) -> Iterator[str]:
    x = float(LABEL)
    for kind in kinds:
        yield f'<rect x="{x:.0f}" y="{y - 10}" width="12" height="12" rx="2" fill="{FILLS[kind]}"/>'
        yield f'<text x="{x + 17:.0f}" y="{y}">{escape(kind)}</text>'
        x += 17 + len(kind) * LETTER + 14
