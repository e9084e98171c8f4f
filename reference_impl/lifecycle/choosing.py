"""From options to a strategy that trains: the book's case of a page's name, with what the user changed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import jax
import typer

import reference_impl
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.forms.pipelined import Pipelined
from reference_impl.lifecycle.loss_curves import SINGLE
from reference_impl.models import Model
from reference_impl.models.mlp import MLP

OF_COMPARE = {"--compare", "--model", "--framework", "--steps", "--epochs", "--batch", "--seed"}


def parse_mesh(text: str) -> dict[str, int]:
    """``data=2,model=4`` as ordered axis sizes. Raises ``ValueError`` where it is not of that form."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = (word.strip() for word in part.partition("="))
        if not name.isidentifier() or not size.isdecimal() or int(size) < 1 or name in axes:
            raise ValueError(f"--mesh {text}: expected different axes with sizes, as data=2,model=4, saw {part!r}")
        axes[name] = int(size)
    return axes


def choose(strategy: str, framework: str, model: str, axes: dict[str, int] | None, batch: int) -> Form:
    """The book's case of this page, with the model, mesh axes and batch that the user named.

    An annotated page takes any model that the book has in its framework; one by hand those that it was written for. Of
    a page that has variants alone, such as rematerialisation, the first is taken.
    Raises ``ValueError``, with what there is, for an unknown page, framework or model, and as `Form` does.
    """
    book = cases()
    pages = [form for form in book if form.name == strategy]
    if not pages:
        raise ValueError(f"unknown strategy {strategy!r}: expected one of {listed(form.name for form in book)}")
    forms = [form for form in pages if form.framework == framework]
    if not forms:
        raise ValueError(
            f"{strategy} is not in framework {framework!r}: expected one of {listed(form.framework for form in pages)}"
        )
    same = [form for form in book if type(form) is type(forms[0]) in (JaxForm, NnxForm)]
    models = {form.model: form for form in (*same, *forms)}
    if model and model not in models:
        raise ValueError(f"{strategy} does not train model {model!r}: expected one of {listed(models)}")
    template = models[model or forms[0].model]
    case = next((form for form in forms if form.model == template.model), forms[0])
    return replace(
        case,
        mesh_axes=axes or case.mesh_axes,
        network=with_targets(template.network),
        optimizer=template.optimizer,
        batch_size=batch or template.batch_size,
    )


def panels(framework: str, model: str, batch: int) -> dict[str, dict[str, Form]]:
    """What is compared, by model and then by page, one device first: the pages that take ``model``; or without one
    every page of the book, with each model that it has cases of. A page that is not in ``framework`` is then in the
    first that it has.

    Raises ``ValueError`` where no page takes the model.
    """
    if model:
        taking = {}
        for page in dict.fromkeys(form.name for form in reference_impl.strategies() if form.framework == framework):
            with suppress(ValueError):
                taking[page] = choose(page, framework, model, None, batch)
        if not taking:
            raise ValueError(f"no page takes model {model!r} in framework {framework!r}: expected such as gpt of jax")
        return {f"{model} ({framework})": {SINGLE: alone(next(iter(taking.values())))} | taking}
    frameworks: dict[str, str] = {}
    found: dict[str, dict[str, Form]] = {}
    for case in sorted(cases(), key=lambda case: (case.framework != framework, case.name != SINGLE)):
        if case.framework == frameworks.setdefault(case.name, case.framework):
            form = replace(case, network=with_targets(case.network), batch_size=batch or case.batch_size)
            pages = found.setdefault(f"{form.model} ({form.framework})", {})
            if not pages:
                pages[SINGLE] = alone(form)
            pages.setdefault(form.name, form)
    return found


def alone(form: Form) -> Form:
    """What this strategy trains, on one device."""
    single = next(case for case in cases() if (case.name, case.framework) == (SINGLE, form.framework))
    return replace(single, network=form.network, optimizer=form.optimizer, batch_size=form.batch_size)


def begun(form: Form, seed: int) -> Any:
    """The state from which a page is compared: that of its ``init``; of an interleaved pipeline, whose stages have
    other blocks beside each other than one device, with the blocks where one device draws them."""
    state = form.init(jax.random.key(seed))  # type: ignore[attr-defined]
    if not isinstance(form, Pipelined) or form.order == sorted(form.order):
        return state
    return form.load(form.network.unstack(jax.device_get(state.parameters), sorted(form.order)))


def cases() -> list[Form]:
    """The book's cases without variants, but of a page that has nothing else."""
    every = list(reference_impl.strategies())
    plain = {form.name for form in every if not form.variant}
    return [form for form in every if not form.variant or form.name not in plain]


def with_targets(network: Model) -> Model:
    """The model that regresses on targets, if it is a perceptron; any other as it is."""
    return replace(network, criterion="mean_squared_error") if isinstance(network, MLP) else network


def listed(names: Any) -> str:
    """Each name once, sorted."""
    return ", ".join(sorted(set(names)))


def check_options(context: typer.Context) -> None:
    """Raises ``ValueError`` for options that are given and of which one would have no effect."""
    given = {
        f"--{name.replace('_', '-')}": value
        for name, value in context.params.items()
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    }
    steps, epochs = given.get("--steps"), given.get("--epochs")
    if steps and epochs:
        raise ValueError(f"--steps {steps} and --epochs {epochs}: expected one of them, each is the length of the run")
    for option in ("--save-every", "--keep"):
        if given.get(option) and "--checkpoints" not in given:
            raise ValueError(f"{option} {given[option]} needs --checkpoints: the folder to save in")
    if "--compare" in given and (idle := [*given.keys() - OF_COMPARE]):
        names = ", ".join(sorted(idle))
        raise ValueError(f"--compare trains each strategy on its own mesh and keeps no state: expected no {names}")
