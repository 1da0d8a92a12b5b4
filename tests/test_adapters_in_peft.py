"""What PEFT does with good adapters and faulty ones: what envcheck's rules are measured by.

Needs PEFT, transformers and torch beside envcheck; the table of faults is of PEFT 0.21.2.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from adapter_faults import ADAPTERS, FAULTS, Fault, made

from envcheck.core.adapter_settings import TYPES

torch = pytest.importorskip("torch", reason="adapters are loaded with PEFT, which needs torch")
peft = pytest.importorskip("peft", reason="adapters are loaded with PEFT")
pytest.importorskip("transformers", reason="the base models are those of transformers")

sys.path.insert(0, str(Path(__file__).parent / "data"))
import build_adapters as built  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # PEFT's, not ours
    pytest.mark.skipif(
        tuple(map(int, peft.__version__.split(".")[:2])) < (0, 21),
        reason="the table is of PEFT 0.21.2",
    ),
]


def _base(case: str) -> Any:
    torch.manual_seed(0)
    return built.CASES[case][0]().eval()


def _logits(model: Any) -> Any:
    with torch.no_grad():
        return model.eval()(input_ids=torch.arange(1, 9)[None]).logits


def _does(case: str, folder: Path) -> str:
    """Load an adapter and say what the model then computes."""
    trained = _logits(peft.PeftModel.from_pretrained(_base(case), str(ADAPTERS / case)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = peft.PeftModel.from_pretrained(_base(case), str(folder))
    except Exception:  # noqa: BLE001 - whatever it raises, it did not load
        return "raises"
    now = _logits(model)
    if torch.allclose(now, trained, atol=1e-6):
        return "as trained"
    return "as base" if torch.equal(now, _logits(_base(case))) else "other"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_peft_does_with_each_fault_what_the_table_says(fault: Fault, tmp_path: Path) -> None:
    assert _does(fault.good, made(fault, tmp_path / "adapter")) == fault.peft


@pytest.mark.parametrize("case", sorted({fault.good for fault in FAULTS}))
def test_the_good_ones_change_what_the_model_computes(case: str) -> None:
    assert _does(case, ADAPTERS / case) == "as trained"
    trained = peft.PeftModel.from_pretrained(_base(case), str(ADAPTERS / case))
    assert not torch.equal(_logits(trained), _logits(_base(case)))


def test_pefts_types_are_those_of_the_table() -> None:
    assert {kind.value for kind in peft.PeftType} == TYPES - {"BONE"}
