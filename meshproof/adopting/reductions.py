"""How often a step reduces each gradient, held to what layouts imply."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import prod

from meshproof.adopting.questions import Question, named, spelled
from meshproof.adopting.theory import Theory
from meshproof.adopting.traffic import Seen, Shape, gradient_shapes
from meshproof.measures.traffic import SCALARS

BY_LOSS = "beside a member loss(state, batch), microbatches and evaluations are known by what multiplies"


def reductions(
    theory: Theory,
    seen: list[Seen],
    forward: list[Seen] | None,
    parts: int,
    evaluations: int,
    read_in_part: frozenset[str],
    alike: Mapping[str, str],
    questions: list[Question],
) -> tuple[int, list[Seen]]:
    """How often each gradient is reduced, and what must move where that contradicts the layouts.

    As many reductions of each gradient as there are ``parts``, or ``evaluations``, or both of these times each other
    are theirs, also where some gradients are reduced more often or not at all; so they are with as many of each metric.
    Gradients that are equal, as ``alike`` says, may be reduced as one.
    """
    counts = {
        (shape, axis): (of, theory.times(of, axis, seen))
        for shape, of in theory.classes()
        for axis in sorted(theory.reduced(of[0]))
        if not {weight.path for weight in of} <= read_in_part
    }
    times = {count for _, count in counts.values()} - {0}
    repetitions = 1
    scalars, once = (sum(each.tensors for each in of or () if each.lane[2] == "metrics") for of in (seen, forward))
    k = min(times, default=Fraction(1))
    whole = len(times) == 1 and k.denominator == 1 and scalars == k * once
    if k > 1 and (whole or k in (parts * evaluations, evaluations)):
        how = f"once or once a microbatch in each of {evaluations} evaluations of the batch"
        if evaluations == 1:
            how = "taken for one a microbatch (one after them would do), or a pass"
        told = f"every gradient is reduced {spelled(k)}{' or more' * (len(times) > 1)}, {how}"
        questions.append(Question("step", f"{told}: intended?"))
        repetitions = int(k)
    asked, promised, found = dict[str, list[str]](), dict[str, Shape](), seen
    for (shape, axis), (of, count) in counts.items():
        if promised.get(of[0].path, shape) != shape or count == repetitions > 1:
            continue
        count /= repetitions
        shapes = set().union(*(gradient_shapes(weight, theory.mesh) for weight in of))
        own = [each for each in seen if each.lane[2] == "gradients" and each.shape in shapes]
        if count == 0 and all(prod(weight.shape) * weight.itemsize <= SCALARS for weight in of):
            told = (
                f"gradients of {named([weight.path for weight in of])}: not reduced over {axis}, as those of sums are"
            )
            questions.append(Question("step", f"{told}, which a loss multiplies by it: intended?"))
            continue
        if count == 0:
            how = f"not reduced over {axis}, which splits the batch"
            if elsewhere := sorted({other for each in own for other in each.lane[1]} - {axis}):
                both = (axis, *elsewhere)
                how += f", but over {' and '.join(elsewhere)}; if a broadcast copy of it is, jax.lax.pcast(parameters, "
                how += f"{both}, to='varying') reduces it once, over all"
        elif count * len(of) >= len({alike.get(weight.path, weight.path) for weight in of}) and count < 1:
            continue
        elif count < 1:
            how = f"reduced over {axis} for {count.numerator} of {count.denominator} of them"
        elif count > 1:
            tells = "what computes them as often says `evaluations`" if forward is not None else BY_LOSS
            how = f"reduced {spelled(count)} over {axis} ({tells})"
        elif (few := theory.not_scattered(of, axis, own)) > 0:
            which = f"{few} of these " if few < len(of) else ""
            how = f"{which}all-reduced over {axis} and then sliced, not reduce-scattered"
        elif any(theory.left_whole(weight, each, axis) for weight in of for each in own):
            how = f"reduced whole over {axis}, not the shards that a scatter leaves"
        else:
            continue
        asked.setdefault(how, []).extend(weight.path for weight in of)
        fresh = [weight for weight in theory.alike(of) if weight.path not in promised]
        if of[0] in fresh:
            promised |= {weight.path: shape for weight in fresh}
            theirs = set().union(*(gradient_shapes(weight, theory.mesh) for weight in fresh))
            found = [each for each in found if each.lane[2] != "gradients" or each.shape not in theirs]
            found += [each for weight in fresh for each in theory.in_theory(weight)]
    questions += [Question("step", f"gradients of {named(paths)}: {how}: intended?") for how, paths in asked.items()]
    return repetitions, found
