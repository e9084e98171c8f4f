"""`meshproof plan`: which strategy, on which mesh, before there is a machine."""

from __future__ import annotations

import json
import math
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshproof.commands.failing import fail
from meshproof.commands.numbers import chips_of, count, number
from meshproof.commands.plots import inline_plan

if TYPE_CHECKING:
    from meshproof.planning.document import Planned

LONGEST = 900.0
"""Seconds that compiling may take, unless --verify-timeout says otherwise."""


def plan(
    hardware: Annotated[
        str, typer.Option(metavar="CHIP", help="v4, v5e, v5p, v6e, tpu7x, a100, h100, h200, b200, gb200.")
    ],
    chips: Annotated[int, typer.Option(parser=chips_of, metavar="N", help="How many of them.")],
    config: Annotated[str | None, typer.Option(metavar="MODEL", help="A model by name, such as llama-70b.")] = None,
    params: Annotated[
        float | None, typer.Option(parser=number, metavar="N", help="Parameters of a model of your own, all of them.")
    ] = None,
    layers: Annotated[int | None, typer.Option(parser=count, metavar="N", help="Its layers, all alike.")] = None,
    d_model: Annotated[
        int | None, typer.Option(parser=count, metavar="N", help="The width of what goes from layer to layer.")
    ] = None,
    d_ff: Annotated[int | None, typer.Option(parser=count, metavar="N", help="The width inside a layer.")] = None,
    heads: Annotated[
        int | None, typer.Option(parser=count, metavar="N", help="Attention heads: tensor shards divide them.")
    ] = None,
    kv_heads: Annotated[
        int | None, typer.Option(parser=count, metavar="N", help="Heads of keys and values, if fewer.")
    ] = None,
    vocab: Annotated[
        int | None, typer.Option(parser=count, metavar="N", help="Without it no logits are counted.")
    ] = None,
    tied: Annotated[
        bool | None,
        typer.Option(
            "--tied/--untied", help="Whether the head is the embedding. Default: by the number of parameters."
        ),
    ] = None,
    sequence: Annotated[
        int | None, typer.Option(parser=count, metavar="N", help="Tokens of a sequence, which is not split.")
    ] = None,
    batch_tokens: Annotated[
        float | None,
        typer.Option(
            parser=number, metavar="N", help="Tokens of a whole step; images for images. Default: the model's own."
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option(help="mixed (float32 at rest, bfloat16 moved), bfloat16 or float32.")
    ] = "mixed",
    optimizer: Annotated[
        str | None, typer.Option(help="adam (two moments, the default), momentum (one) or sgd (none).")
    ] = None,
    memory_gb: Annotated[
        float | None, typer.Option(parser=number, metavar="GB", help="Memory of a device in GB, if not the chip's own.")
    ] = None,
    mfu: Annotated[
        float,
        typer.Option(
            parser=number, metavar="SHARE", help="Of its peak what one device reaches, as measured. Default: all."
        ),
    ] = 1.0,
    network: Annotated[str | None, typer.Option(metavar="LINK", help="Between hosts, such as ethernet-100.")] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="REPORT.json", help="Of a run of the suites: compare its programs."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compile the best strategy for these chips: formula beside compiler.")
    ] = False,
    strategy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Verify this one, such as 'FSDP + tensor parallel'.")
    ] = None,
    impl: Annotated[
        str | None,
        typer.Option(metavar="MODULE", help="Read the sizes of this trainer; or, beside a model, who builds it."),
    ] = None,
    case: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Of the trainer: a part of the name of the case to read.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Verify for this target: cpu, where no compiler is installed.")
    ] = None,
    verify_timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=1, max=1e6, help="The longest that compiling may take. Default: 900."),
    ] = None,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with pictures here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Which strategies fit, which wait for a link, and which mesh is fastest? By formulas, in less than a second.

    Reckons every strategy on every mesh that splits the model and the batch evenly: bytes of a device by term, seconds
    of products and of what each mesh axis moves. Nothing is run, and without --verify and --impl JAX is not imported;
    docs/planning.md has the formulas and what they leave out. Exit code 0: a plan fits. 1: none does, or the compiler
    does not agree. 2: it cannot be planned.

    - `meshproof plan --config llama-70b --hardware h100 --chips 64`

    - `meshproof plan --impl my_trainer --hardware h100 --chips 64`

    - `meshproof plan --hardware v5p --chips 1024 --batch-tokens 4e6 --params 175e9 --layers 96 --d-model 12288 --d-ff
      49152`
    """
    from meshproof.files import check_writable
    from meshproof.planning.asked import LEAST_PARAMETERS, asked_model, named, whole
    from meshproof.planning.document import answer, document
    from meshproof.planning.memory import FLOAT32, MOMENTS, PRECISIONS
    from meshproof.planning.models import PlanError
    from meshproof.planning.printing import write
    from meshproof.planning.search import Question
    from meshproof.planning.verifying import verified
    from meshproof.report.document import read_report
    from meshproof.targets import find_chip
    from meshproof.targets.links import find_link

    try:
        if page:
            check_writable(page, "--page")
        sizes = {"layers": layers, "d_model": d_model, "d_ff": d_ff, "heads": heads, "kv_heads": kv_heads}
        sizes |= {"vocabulary": vocab, "length": sequence}
        given: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
        given |= {} if tied is None else {"tied": tied}
        if (impl and not verify and (config or params)) or (case and (config or params or not impl)):
            raise PlanError(
                f"--{'impl' if impl and not case else 'case'} reads sizes of a trainer: leave away the model"
            )
        if params is not None and config is None:
            params = whole("--params", params, LEAST_PARAMETERS, "7e9")
        seconds = LONGEST if verify_timeout is None else verify_timeout
        read = read_trainer(impl, case, seconds) if impl and config is None and params is None else {}
        model = asked_model(config, params, given, read)
        if read:
            optimizer = optimizer or read["optimizer"]
        optimizer = optimizer or "adam"
        if precision not in PRECISIONS:
            raise PlanError(f"--precision {precision}: expected one of {', '.join(PRECISIONS)}")
        if optimizer not in MOMENTS:
            raise PlanError(f"--optimizer {optimizer}: expected one of {', '.join(MOMENTS)}")
        kept = replace(PRECISIONS[precision], moments=MOMENTS[optimizer] * FLOAT32)
        chip = named("--hardware", hardware, find_chip)
        if memory_gb is not None:
            if not 1e-9 <= memory_gb < math.inf:
                raise PlanError(f"--memory-gb {memory_gb:g}: expected a size above 0, such as 80")
            chip = replace(chip, memory=int(memory_gb * 1e9))
        if network is not None:
            chip = replace(chip, network_bandwidth=named("--network", network, find_link).bandwidth)
        own = read.get("batch", model.batch)
        if batch_tokens is None and not own:
            raise PlanError(
                f"give --batch-tokens, the {model.unit}s of a whole step, such as 4e6: {model.name} has none"
            )
        batch = whole("--batch-tokens", own if batch_tokens is None else batch_tokens, 1, "4e6")
        planned = answer(Question(model, chip, chips, batch, kept, mfu))
        told = (
            document(planned)
            | ({"read": read} if read else {})
            | (verified(planned.question, read_report(against)) if against else {})
        )
        if verify:
            told["compiled"] = compile_best(planned, optimizer, strategy, impl or "reference_impl", target, seconds)
        elif strategy or target:
            raise PlanError(f"--{'strategy' if strategy else 'target'} is of --verify, which was not given")
        elif verify_timeout is not None and not read:
            raise PlanError(
                f"--verify-timeout {verify_timeout:g} is of --verify and of reading --impl, and neither was given"
            )
    except OverflowError as error:
        fail(f"the sizes are too large to be reckoned with: {error}")
    except (ValueError, OSError) as error:
        fail(str(error))
    if page:
        write_page(page, planned, told)
    if as_json:
        typer.echo(json.dumps(told, indent=1))
    else:
        write(told, typer.echo)
    if not planned.fits:
        fail(told["why_not"], 1)
    if verify and told["compiled"]["parted"]:
        fail("\n  - ".join(["the compiler does not agree:", *told["compiled"]["parted"]]), 1)


def compile_best(
    planned: Planned, optimizer: str, strategy: str | None, impl: str, target: str | None, seconds: float
) -> dict[str, Any]:
    """The best plan that the implementation realises, beside what a compiler makes of it.

    Raises ``ValueError`` where nothing is compiled: nothing fits, nothing is realised, no compiler is here.
    """
    from meshproof.planning.compiled import beside
    from meshproof.planning.models import PlanError
    from meshproof.planning.proposing import chosen, pieces, proposal, target_of
    from meshproof.targets import read_target

    question = planned.question
    plans = chosen(question, planned.plans, strategy)
    if not plans:
        raise PlanError("--verify: nothing fits, so that nothing is proposed; --strategy names what is compiled then")
    found = read_target(target or target_of(question))
    if found.devices is not None and found.devices < question.devices:
        raise PlanError(
            f"--target {found.name}: expected a target of {question.devices:,} devices or more, as the plan has; this "
            f"one has {found.devices:,}: name a larger one, or fewer --chips"
        )
    name = found.name

    from meshproof.contract import Proposal
    from meshproof.planning.advice import size
    from meshproof.proposals.compiling import ExhaustedError
    from meshproof.proposals.process import compile_proposals

    parts = list(pieces(plans, question.batch))
    sys.path.insert(0, str(Path.cwd()))
    wanted = [Proposal(**proposal(question, piece, optimizer)) for piece in parts]
    devices = question.devices if name == "cpu" else 1
    try:
        facts = compile_proposals(impl, name, devices, wanted, seconds)
    except ExhaustedError as error:
        fail(f"{error}; a plan may take {size(question.usable)} of a device", 1)
    piece = parts[facts["number"]]
    return {"refused": facts["refused"]} | beside(question, piece, facts)


def read_trainer(impl: str, case: str | None, seconds: float) -> dict[str, Any]:
    """The sizes, the batch and the optimizer of a trainer, as its shapes tell them. Raises ``ValueError``."""
    from meshproof.planning.memory import MOMENTS
    from meshproof.planning.models import Model, PlanError
    from meshproof.planning.reading import sizes_of
    from meshproof.proposals.process import trainer_shapes

    sys.path.insert(0, str(Path.cwd()))
    told = trainer_shapes(impl, case, seconds)
    shapes = {path: tuple(shape) for path, shape in told["parameters"].items()}
    sizes = sizes_of(shapes, {path: (tuple(shape), dtype) for path, (shape, dtype) in told["batch"].items()})
    examples = sizes.pop("examples")
    unit = {} if "length" in sizes else {"unit": "example"}
    try:
        Model(told["case"], **sizes | unit)
    except PlanError:  # its layers are others than a plan knows: their number says nothing
        sizes = {name: sizes[name] for name in ("parameters", "length") if name in sizes}
    named = {count: name for name, count in MOMENTS.items()}
    return {
        "case": told["case"],
        "models": told["models"],
        "sizes": sizes | unit,
        "batch": examples * sizes.get("length", 1),
        "optimizer": named.get(told["moments"]),
    }


def write_page(path: Path, planned: Planned, told: dict[str, Any]) -> None:
    """Write the page with its pictures, whole or not at all."""
    from meshproof.files import replace_text
    from meshproof.html.plans import render_plan

    command = shlex.join(["meshproof", *sys.argv[1:]])
    try:
        replace_text(path, render_plan(told, inline_plan(planned), command))
    except OSError as error:
        fail(str(error))
    typer.echo(f"written: {path}", err=True)
