"""A plan in words: the way to a strategy, question by question, and what goes wrong later if nobody says it now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from meshproof.planning import pipelining, rooflines
from meshproof.planning.costs import Plan, memory_of
from meshproof.planning.layouts import Layout, way_of
from meshproof.planning.models import Model
from meshproof.planning.search import Question, fewest_chips

BUSY = 0.9
"""The efficiency that a pipeline should have."""


def size(amount: float) -> str:
    """Bytes, in words."""
    for unit, width in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if amount >= width:
            return f"{amount / width:.3g} {unit}"
    return f"{amount:,.0f} bytes"


def duration(seconds: float) -> str:
    """Seconds or milliseconds."""
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{1e3 * seconds:.3g} ms"


def count(amount: float) -> str:
    """Tokens, in words."""
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:.3g}"


def state_bytes(question: Question, layout: Layout) -> float:
    """Parameters, gradients and moments of a layout's fullest device."""
    return memory_of(question.model, layout, question.batch, question.precision).state


def needed_tokens(question: Question, layout: Layout) -> float:
    """Tokens a device that the data axis of a layout needs to hide what it moves: C/W over its links."""
    way = way_of(layout, "data", question.chip)
    return rooflines.tokens_per_chip(question.reached, way.bandwidth, way.axes)


def decision_path(question: Question, plans: Sequence[Plan]) -> Iterator[str]:
    """From "does it fit on one device?" to a strategy, with both numbers at each step."""
    model, devices, memory, unit = question.model, question.devices, question.usable, question.model.unit
    alone, split = state_bytes(question, Layout()), state_bytes(question, Layout(3, data=devices))
    tokens = question.batch / devices
    told = f"parameters, gradients and moments take {size(alone)}, {size(memory)} can be used"
    if alone <= memory:
        simplest = plans_of("data parallel" if devices > 1 else "single device", plans)
        if all(map(question.fits, simplest)):
            yield f"Does it fit on one device? Yes: {told}. Data parallelism is the simplest strategy."
        else:
            least = size(simplest[0].memory.total)
            yield f"Does it fit on one device? Not with its batch: {told}; the smallest microbatches make it {least}."
    else:
        yield f"Does it fit on one device? No: {told}."
        verdict = "Yes" if split <= memory else "No"
        yield f"Does it fit if FSDP splits these over {devices:,} devices? {verdict}: {size(split)} each."
    if model.is_stack and alone > memory:
        enough = pipelining.microbatches_for(4, BUSY)
        yield (
            f"Is it a sequence of layers? Yes, {model.layers}: a pipeline could hold it too. One of S stages is idle "
            f"for (S − 1)/(M + S − 1) of its time; 4 stages need {enough} microbatches for {BUSY:.0%}."
        )
    elif not model.is_stack:
        yield "Is it a sequence of layers? None were given (--layers, --d-model, --d-ff): only its batch is split here."
    if devices > 1 and model.flops:
        for plan in plans_of("data parallel", plans):
            verdict = "No" if plan.bound else "Yes"
            yield (
                f"Does a batch of {count(question.batch)} {unit}s hide what data parallelism moves? {verdict}: "
                f"products take {duration(plan.math)}, gradients {duration(plan.comms)}."
            )
    elif devices > 1:
        needed = needed_tokens(question, Layout(3, data=devices))
        yield (
            f"Does a batch of {count(question.batch)} {unit}s hide what data parallelism or FSDP moves? "
            f"{'Yes' if tokens >= needed else 'No'}: {count(tokens)} {unit}s a device, needed {count(needed)} "
            f"(C/W over its axes)."
        )
        if model.is_stack and tokens < needed:
            yield mixed(question)
        if tokens >= needed:
            yield from (waits_for_hops(plan) for plan in plans_of("data parallel", plans) if plan.bound)
    if question.fits(plans[0]):
        best, alone_by_fsdp = plans[0], [plan for plan in plans_of("FSDP", plans) if question.fits(plan)]
        others = [f" (FSDP alone {duration(plan.seconds)})" for plan in alone_by_fsdp if plan is not best]
        yield (
            f"So: {best.layout.name}, mesh {best.layout.spelled}{steps(best)}, {duration(best.seconds)} a step"
            f"{''.join(others)}."
        )


def waits_for_hops(plan: Plan) -> str:
    """A plan whose bytes hide, and which waits all the same: for the latency of its ring."""
    [line] = plan.traffic
    return (
        f"Do its hops hide, too? No: products take {duration(plan.math)}, what moves {duration(line.seconds)} in a "
        f"ring of {plan.layout.data:,} devices, of which its {size(line.bytes)} at {size(line.way.bandwidth)}/s are "
        f"{duration(line.bytes / line.way.bandwidth / line.way.axes)}."
    )


def mixed(question: Question) -> str:
    """What FSDP and tensor parallelism need together, by the book's formulas."""
    model, chip = question.model, question.chip
    M_X, M_Y = max(1, chip.axes - 1), 1
    figures = (question.reached, chip.link_bandwidth)
    tokens = question.batch / question.devices
    needed = rooflines.tokens_per_chip_with_tensors(model.d_ff, *figures, M_X, M_Y)
    shards = rooflines.most_tensor_shards(model.d_ff, *figures, M_Y)
    best = rooflines.best_fsdp_shards(question.batch, model.d_ff, question.devices, M_X, M_Y)
    beyond = "" if question.devices <= chip.linked else f"; only {chip.linked:,} devices are linked so"
    return (
        f"Do both with tensor parallelism? {'Yes' if tokens >= needed else 'No'}: they need {count(needed)} tokens a "
        f"device on its links (4α²/(M_X·M_Y·F)), best with {count(best)} data shards (X_opt), and at most "
        f"{count(shards)} tensor shards (F/α){beyond}."
    )


def steps(plan: Plan) -> str:
    """Microbatches and recomputation, in words."""
    layout = plan.layout
    many = f", {layout.microbatches} microbatches" if layout.microbatches > 1 else ""
    return many + (", layers recomputed" if layout.recomputes else "")


def pitfalls(question: Question, plans: Sequence[Plan]) -> Iterator[str]:
    """What a run would show after hours, with both numbers."""
    model, chip, devices = question.model, question.chip, question.devices
    memory, alone = question.usable, memory_of(question.model, Layout(), question.batch, question.precision)
    if alone.parameters <= memory < alone.state:
        yield (
            f"The parameters fit on a device ({size(alone.parameters)} of {size(memory)}), but not with their "
            f"gradients ({size(alone.gradients)}) and moments ({size(alone.moments)})."
        )
    if question.examples % devices:
        below, step = question.examples // devices * devices, model.length or 1
        near = [f"{examples * step:,}" for examples in (below, below + devices) if examples]
        yield (
            f"The batch does not divide between {devices:,} devices: data parallelism and FSDP over all of them need "
            f"{' or '.join(near)} {model.unit}s."
        )
    tokens, needed = question.batch / devices, needed_tokens(question, Layout(3, data=devices))
    if devices > 1 and not model.flops and tokens < needed:
        yield (
            f"The batch is below the bound: {count(tokens)} {model.unit}s a device, and data parallelism or FSDP alone "
            f"need {count(needed)} to hide what they move."
        )
    if not question.fits(plans[0]):
        return
    best = plans[0]
    yield from (told for told in map(slow_network, plans_of("FSDP", plans)) if told)
    if best.bound:
        often = best.layout.microbatches if best.bound.axis == "data" and best.layout.zero == 3 else 1
        again = f", {often} times" if often > 1 else ""
        yield (
            f"The best mesh waits for a link: products take {duration(best.math)} of a step, what moves "
            f"{duration(best.comms)}; most of it {best.bound.moves}{again}, over {best.bound.axis} "
            f"({'network' if best.bound.way.network else 'links'})."
        )
    pipeline = next((plan for plan in plans if plan.layout.pipeline > 1), None)
    if pipeline and pipeline.efficiency < BUSY - 0.005:
        stages, has = pipeline.layout.pipeline, pipeline.layout.microbatches
        yield (
            f"Too few microbatches for the best pipeline: {has} keep {stages} stages busy {pipeline.efficiency:.0%} of "
            f"the time; {pipelining.microbatches_for(stages, BUSY)} would do so for {BUSY:.0%}."
        )
    closes = chip.described.get("closes", 1)
    if devices > 1 and devices // chip.devices % closes**chip.axes:
        yield (
            f"{question.chips} chips are no whole torus of {'x'.join([str(closes)] * chip.axes)}: axes that are not "
            f"closed take up to twice as long as planned here."
        )
    yield from unknown(model)


def plans_of(name: str, plans: Sequence[Plan]) -> list[Plan]:
    """The best plan of a strategy, if there is one."""
    return [plan for plan in plans if plan.layout.name == name][:1]


def slow_network(plan: Plan) -> str:
    """What FSDP alone waits for, if its axis leaves the links."""
    [line] = plan.traffic
    if not (line.way.network and plan.bound):
        return ""
    by_bytes = line.bytes / line.way.bandwidth / line.way.axes
    hops = ", most of it the latency of hops" if line.seconds > 2 * by_bytes else ""
    return (
        f"FSDP over {plan.layout.data:,} devices leaves the links: {size(line.bytes)} a step at "
        f"{size(line.way.bandwidth)}/s take {duration(line.seconds)}{hops}, products {duration(plan.math)}. HSDP keeps "
        f"parameters within what is linked, and sends gradients once."
    )


def unknown(model: Model) -> Iterator[str]:
    """What is not in the sums because its sizes were not given."""
    if model.is_stack and not model.vocabulary:
        yield "Logits are not counted: no --vocab was given. Of a large vocabulary they can be the largest term."
    if model.is_stack and not model.length:
        yield "Attention's scores are not counted, and sequences may be cut: no --sequence was given."
    if model.is_stack and model.vocabulary and model.tied is None:
        taken = "the embedding" if model.is_tied else "a matrix of its own"
        yield f"The head is taken for {taken}, by the number of parameters: --tied or --untied says it."
    if not model.is_stack and not model.saved:
        yield "Activations are not counted: neither layers nor widths were given."
    if not model.is_stack:
        yield "What is gathered of a layer, or cast, at a time is not counted: no --layers were given."


def fits_nowhere(question: Question, plans: Sequence[Plan]) -> str:
    """By how much, on which term, and what would hold it."""
    least = min(plans, key=lambda plan: plan.memory.total)
    term, most = next(iter(least.memory.terms.items()))
    chips = fewest_chips(question)
    return (
        f"{question.model.name} fits on no mesh of {question.chips:,} × {question.chip.name}: {least.layout.name} "
        f"({least.layout.spelled}{steps(least)}) takes the least, {size(least.memory.total)} of "
        f"the {size(question.usable)} that can be used of a device, {size(least.memory.total - question.usable)} too "
        f"much; its "
        f"largest term is {term.replace('_', ' ')}, {size(most)}. "
        + (
            f"{chips:,} chips would hold it (the fewest of powers of two and three times these)"
            if chips
            else "no number of chips up to a million holds it with this batch"
        )
    )


def doublings(question: Question) -> dict[str, Question]:
    """The same with the next doublings of batch and of chips."""
    return {
        "2 × the batch": replace(question, batch=2 * question.batch),
        "4 × the batch": replace(question, batch=4 * question.batch),
        "2 × the chips": replace(question, chips=2 * question.chips),
        "4 × the chips": replace(question, chips=4 * question.chips),
    }
