"""Faults of a scan over blocks: where parameters are gathered and gradients scattered, and what is recomputed."""

from __future__ import annotations

from reference_impl.forms.annotated import JaxForm
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.modifiers import Modified
from reference_impl.modifiers.rematerialisation import Rematerialised
from reference_impl.strategies import data_parallel, fsdp, hsdp
from tests.saboteurs.planting import DATA, plant
from tests.saboteurs.transformers import KeepsAll, of_gpt

SLICES = {"replica": 2, "data": 4}


class GathersOnce(Rematerialised):
    """The gather hoisted out of both loops: parameters are whole before the first block, and until the last."""

    reshard = Modified.reshard


plant("healthy_scan", of_gpt(JaxForm, Rematerialised(ScannedGPT())), fsdp.PAGE, DATA)
plant("healthy_scan_data_parallel", of_gpt(JaxForm, Rematerialised(ScannedGPT())), data_parallel.PAGE, DATA)
plant("gathered_once_before_scan", of_gpt(JaxForm, GathersOnce(ScannedGPT())), fsdp.PAGE, DATA, "COM-4", "COM-11")
plant("all_kept_by_scan", of_gpt(JaxForm, KeepsAll(ScannedGPT())), fsdp.PAGE, DATA, "MEM-4", "COM-4", "COM-11")
plant("gradients_whole_in_scan", of_gpt(JaxForm, ScannedGPT()), fsdp.PAGE, DATA, "MEM-4", "COM-2", "COM-4", "COM-11")
plant("slices_reduced_in_scan", of_gpt(JaxForm, Rematerialised(ScannedGPT())), hsdp.PAGE, SLICES, "COM-7", "COM-11")
