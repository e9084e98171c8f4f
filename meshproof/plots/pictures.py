"""All pictures of some files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib import rc_context

from meshproof.plots.against import BATCH, MESH, draw_against
from meshproof.plots.drawing import STYLE, Picture
from meshproof.plots.losses import draw_losses
from meshproof.plots.pipelines import draw_pipelines
from meshproof.plots.plans import draw_plan
from meshproof.plots.reading import Material, PlotError, read_files
from meshproof.plots.rooflines import draw_reported
from meshproof.plots.speedups import draw_speedups


def draw_files(paths: Sequence[Path]) -> tuple[list[Picture], list[str]]:
    """A picture for each question, some of them without a figure, and remarks on what of the files is left out.

    Raises `PlotError` if there is no figure at all, and what `read_files` raises.
    """
    material = read_files(paths)
    with rc_context(STYLE):
        seen = [] if material.is_planned_alone else [draw_losses(material), *_timed(material)]
        return _answered([*seen, *_planned(material)], material)


def draw_benchmarks(paths: Sequence[Path]) -> tuple[list[Picture], list[str]]:
    """As `draw_files`, for the questions that benchmarks answer."""
    material = read_files(paths)
    with rc_context(STYLE):
        return _answered(_timed(material), material)


def _planned(material: Material) -> Iterator[Picture]:
    """Those of each plan, with its file in their names if there are several; without one the rooflines of reports."""
    for stem, planned in material.plans:
        for picture in draw_plan(planned, material.reports):
            yield replace(picture, name=f"{picture.name}-{stem}") if material.plans[1:] else picture
    if not material.plans:
        yield from draw_reported(material.reports, material.sources)


def _timed(material: Material) -> list[Picture]:
    against = [draw_against(material, question) for question in (BATCH, MESH)]
    return [draw_speedups(material), *against, draw_pipelines(material)]


def _answered(pictures: list[Picture], material: Material) -> tuple[list[Picture], list[str]]:
    if not any(picture.figure for picture in pictures):
        reasons = [*material.remarks, *(remark for picture in pictures for remark in picture.remarks)]
        raise PlotError("nothing can be drawn:\n  " + "\n  ".join(reasons))
    return pictures, material.remarks
