"""All checks, in the order in which they are run and shown."""

from __future__ import annotations

from envcheck.checks import (
    assembler_accepts_target,
    build_is_reproducible,
    card_is_usable,
    core_ops_match_reference,
    cuda_kernels_hold_target_code,
    cuda_kernels_match_reference,
    device_code_runs_on_target,
    device_memory_is_returned,
    distribution_runs_on_target,
    driver_supports_target,
    every_kernel_runs_on_target,
    extensions_import,
    extensions_match_reference,
    first_kernel_starts_soon,
    image_labels_match_content,
    nothing_falls_back,
    requirements_are_installed,
    results_repeat,
    torch_family_matches,
    torch_has_code_for_target,
    triton_assembler_knows_target,
    triton_kernels_compile_for_target,
    triton_kernels_fit_shared_memory,
    triton_kernels_match_reference,
    triton_matches_torch_pin,
)
from envcheck.checks.check import Check, Question

__all__ = ["CHECKS", "Check", "Question"]

CHECKS: tuple[Check, ...] = (
    device_code_runs_on_target.CHECK,
    every_kernel_runs_on_target.CHECK,
    distribution_runs_on_target.CHECK,
    torch_has_code_for_target.CHECK,
    triton_matches_torch_pin.CHECK,
    triton_assembler_knows_target.CHECK,
    driver_supports_target.CHECK,
    assembler_accepts_target.CHECK,
    triton_kernels_compile_for_target.CHECK,
    triton_kernels_fit_shared_memory.CHECK,
    cuda_kernels_hold_target_code.CHECK,
    extensions_import.CHECK,
    card_is_usable.CHECK,
    first_kernel_starts_soon.CHECK,
    core_ops_match_reference.CHECK,
    triton_kernels_match_reference.CHECK,
    cuda_kernels_match_reference.CHECK,
    extensions_match_reference.CHECK,
    nothing_falls_back.CHECK,
    results_repeat.CHECK,
    device_memory_is_returned.CHECK,
    image_labels_match_content.CHECK,
    build_is_reproducible.CHECK,
    requirements_are_installed.CHECK,
    torch_family_matches.CHECK,
)
