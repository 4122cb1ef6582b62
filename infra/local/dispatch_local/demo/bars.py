"""The timeline as text for a terminal, while it happens and afterwards."""

from __future__ import annotations

from rich.text import Text

from dispatch_local.demo.svg import words
from dispatch_local.demo.timeline import Kind, Span, Timeline

LABEL = 9
NARROWEST = 20

# A letter for each, since a log or a terminal may have no colours.
FILLS = {
    Kind.GATED: (".", "bright_black"),
    Kind.HELD: ("h", "magenta"),
    Kind.QUOTA: ("q", "yellow"),
    Kind.CHECK: ("c", "dark_orange"),
    Kind.OLD_PODS: ("o", "bold red"),
    Kind.STARTING: ("-", "cyan"),
    Kind.RUNS: ("=", "bold blue"),
    Kind.ENDS: ("/", "blue"),
}


def draw(timeline: Timeline, width: int, now: float) -> list[Text]:
    """Return the lines, each at most `width` columns: two a job, then the axis and what the letters mean."""
    begin = timeline.begin()
    length = max(now - begin, 1.0)
    columns = max(width - LABEL, NARROWEST)
    lines, used = list[Text](), set[Kind]()
    for track in timeline.tracks.values():
        for heading, row in zip((track.title, "  pods"), track.rows(), strict=True):
            used |= {span.kind for span in row}
            line = Text.assemble((f"{heading:{LABEL}.{LABEL - 1}}", "bold" if heading == track.title else "dim"))
            line.append_text(_row(row, begin, now, columns / length, columns))
            lines.append(line)
    if not lines:
        return []
    lines.append(_axis(length, columns))
    return lines + _legend([kind for kind in Kind if kind in used], width)


def _row(row: list[Span], begin: float, now: float, scale: float, columns: int) -> Text:
    cells = [(" ", "")] * columns
    for span in row:
        end = now if span.end is None else span.end
        first = min(int((span.begin - begin) * scale), columns - 1)
        # What took place is seen, however short it was.
        last = min(max(round((end - begin) * scale), first + 1), columns)
        letter, style = FILLS[span.kind]
        said = f" {words(span)} "
        if span.kind == Kind.RUNS and len(said) + 2 <= last - first:
            drawn = said.center(last - first, letter)
        else:
            drawn = letter * (last - first)
        cells[first:last] = [(character, style) for character in drawn]
    return Text.assemble(*cells)


def _axis(length: float, columns: int) -> Text:
    ends = f"{length:.0f} s"
    return Text.assemble((" " * LABEL + "0" + "_" * (columns - len(ends) - 1) + ends, "dim"))


def _legend(kinds: list[Kind], width: int) -> list[Text]:
    lines = [Text(" " * LABEL)]
    for kind in kinds:
        letter, style = FILLS[kind]
        said = f" {kind}"
        if len(lines[-1]) + len(said) + 4 > width:
            lines.append(Text(" " * LABEL))
        if len(lines[-1]) > LABEL:
            lines[-1].append("  ")
        lines[-1].append(letter * 2, style)
        lines[-1].append(said)
    return lines
