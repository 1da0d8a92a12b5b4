"""Documents come back byte for byte, and what does not fit is refused with its path."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envcheck.core import codec
from envcheck.core.device_file import Code, Container, DeviceFile
from envcheck.core.distribution import Distribution
from envcheck.core.linking import Linked
from envcheck.core.model import (
    Assembler,
    Assurance,
    Domain,
    Environment,
    Finding,
    Inventory,
    Report,
    Status,
    Target,
    Torch,
    Triton,
    Verdict,
)
from envcheck.errors import DocumentInvalid

# Surrogates too: that is how Python names a file whose name is no UTF-8.
TEXT = st.text(st.characters(exclude_categories=()), max_size=12)
SHORT = st.lists(TEXT, max_size=3).map(tuple)


def maybe(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | strategy


def several(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(strategy, max_size=3).map(tuple)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: several(inner) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
CODE = st.builds(Code, kind=TEXT, sm=TEXT, isa=maybe(TEXT))
CONTAINER = st.builds(
    Container,
    section=TEXT,
    code=several(CODE),
    count=st.integers(),
    has_code=st.booleans(),
    kernels=maybe(SHORT),
)
FILE = st.builds(
    DeviceFile,
    path=TEXT,
    format=TEXT,
    size=st.integers(),
    containers=several(CONTAINER),
    needed=SHORT,
    skipped=maybe(TEXT),
    problem=maybe(TEXT),
)
DISTRIBUTION = st.builds(
    Distribution,
    name=TEXT,
    version=TEXT,
    record_digest=maybe(TEXT),
    direct_url=maybe(TEXT),
    files=SHORT,
    requires=SHORT,
)
ENVIRONMENT = st.builds(
    Environment,
    python=TEXT,
    implementation=TEXT,
    platform=TEXT,
    libc=TEXT,
    digest=TEXT,
    distributions=several(DISTRIBUTION),
    torch=maybe(st.builds(Torch, version=TEXT, cuda=maybe(TEXT), arch_list=SHORT)),
    triton=maybe(
        st.builds(
            Triton,
            version=TEXT,
            assemblers=several(st.builds(Assembler, name=TEXT, version=maybe(TEXT))),
        )
    ),
    driver=maybe(TEXT),
    variables=maybe(st.dictionaries(TEXT, TEXT, max_size=3)),
)
INVENTORY = st.builds(
    Inventory,
    source=TEXT,
    files=several(FILE),
    passed_over=st.integers(),
    environment=maybe(ENVIRONMENT),
)
FINDING = st.builds(
    Finding,
    check=TEXT,
    subject=TEXT,
    status=st.sampled_from(Status),
    message=TEXT,
    remedy=TEXT,
    domain=st.sampled_from(Domain),
    evidence=st.dictionaries(TEXT, JSON, max_size=3),
    required=st.booleans(),
)
REPORT = st.builds(
    Report,
    target=st.builds(Target, name=TEXT, sm=TEXT),
    driver=maybe(TEXT),
    verdict=st.sampled_from(Verdict),
    assurance=st.sampled_from(Assurance),
    findings=several(FINDING),
    summary=st.dictionaries(TEXT, JSON, max_size=3),
)


@given(INVENTORY)
def test_inventory_round_trip(value: Inventory) -> None:
    text = codec.dumps(value)
    text.encode("utf-8")
    again = codec.loads(Inventory, text.encode(), name="inventory.json")
    assert again == value
    assert codec.dumps(again) == text


@given(REPORT)
def test_report_round_trip(value: Report) -> None:
    text = codec.dumps(value)
    text.encode("utf-8")
    again = codec.loads(Report, text, name="report.json")
    assert again == value
    assert codec.dumps(again) == text
    assert type(again.verdict) is Verdict


@given(JSON)
def test_what_is_written_is_what_another_reader_reads(value: object) -> None:
    def plain(item: object) -> object:
        if isinstance(item, tuple):
            return [plain(part) for part in item]
        if isinstance(item, dict):
            return {key: plain(part) for key, part in item.items()}
        return item

    assert json.loads(codec.dumps(value)) == plain(value)


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_bytes_that_are_no_inventory_are_refused_by_name(data: bytes | str) -> None:
    with pytest.raises(DocumentInvalid, match=r"^some\.json") as refused:
        codec.loads(Inventory, data, name="some.json")
    assert refused.value.exit_code == 1


GOOD = {
    "schema": "envcheck/inventory/v1",
    "source": "files",
    "files": [
        {
            "path": "a.so",
            "format": "shared-object",
            "size": 10,
            "containers": [{"section": ".nv_fatbin", "code": [{"kind": "sass", "sm": "sm_90"}]}],
        }
    ],
}


def changed(path: str, value: object) -> dict:
    """Return GOOD with one place replaced (or removed, for the value `...`)."""
    data = json.loads(json.dumps(GOOD))
    *way, last = [int(p) if p.isdigit() else p for p in path.split("/")]
    place = data
    for part in way:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return data


def test_the_good_document_is_good() -> None:
    built = codec.from_json(Inventory, GOOD, "x")
    assert built.files[0].containers[0].code == (Code(kind="sass", sm="sm_90"),)
    assert built.files[0].containers[0].has_code is True


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("files", {}, "x.files: expected a list, got dict"),
        ("files", None, "x.files: expected a list, got NoneType"),
        ("source", 1, "x.source: expected str, got int"),
        ("source", ..., "x.source: missing"),
        ("files/0/size", "10", "x.files[0].size: expected int, got str"),
        ("files/0/size", True, "x.files[0].size: expected int, got bool"),
        ("files/0/size", 10.0, "x.files[0].size: expected int, got float"),
        ("files/0/path", ..., "x.files[0].path: missing"),
        ("files/0", [], "x.files[0]: expected an object, got list"),
        ("files/0/colour", "red", "x.files[0].colour: no such field"),
        ("files/0/containers/0/has_code", 0, "x.files[0].containers[0].has_code: expected bool"),
        (
            "files/0/containers/0/code/0/sm",
            None,
            "x.files[0].containers[0].code[0].sm: expected str, got NoneType",
        ),
        (
            "files/0/containers/0/kernels",
            ["a", 2],
            "x.files[0].containers[0].kernels[1]: expected str",
        ),
        ("environment", "3.11", "x.environment: expected an object, got str"),
        ("environment", {"python": "3.11"}, "x.environment.implementation: missing"),
    ],
)
def test_refusal_names_the_path(place: str, value: object, message: str) -> None:
    with pytest.raises(DocumentInvalid) as refused:
        codec.from_json(Inventory, changed(place, value), "x")
    assert refused.value.message.startswith(message)


def test_refusal_of_a_word_lists_the_known_ones() -> None:
    with pytest.raises(DocumentInvalid, match=r"r\.status: 'ok' is none of pass, warn, fail"):
        codec.from_json(
            Finding,
            {"check": "c", "subject": "s", "status": "ok", "message": "", "evidence": {}},
            "r",
        )


def test_a_mapping_keeps_to_its_type_of_value() -> None:
    environment = {
        **dict.fromkeys(("python", "implementation", "platform", "libc", "digest"), "x"),
        "variables": {"A": 1},
    }
    with pytest.raises(DocumentInvalid, match=r"^e\.variables\.A: expected str, got int$"):
        codec.from_json(Environment, environment, "e")


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_lacks_are_refused_both_ways(word: str) -> None:
    with pytest.raises(DocumentInvalid, match=f"a.json: .*{word}"):
        codec.parse(f'{{"x": {word}}}', name="a.json")
    with pytest.raises(ValueError, match="JSON"):
        codec.dumps({"x": float(word)})


def test_a_number_too_large_for_a_float_is_refused_not_infinite() -> None:
    with pytest.raises(DocumentInvalid, match=r"a\.json: .*1e400 is too large"):
        codec.parse('{"x": 1e400}', name="a.json")
    assert codec.parse('{"x": 1e308}', name="a.json") == {"x": 1e308}


def test_a_file_name_that_is_no_utf8_can_be_written_and_read() -> None:
    path = os.fsdecode(b"a\xff.so")
    value = Inventory(source="files", files=(DeviceFile(path=path, format="other", size=0),))
    data = codec.dumps(value).encode("utf-8")
    assert b'"a\\udcff.so"' in data
    again = codec.loads(Inventory, data, name="i.json")
    assert os.fsencode(again.files[0].path) == b"a\xff.so"


def test_a_key_that_occurs_twice_is_refused() -> None:
    with pytest.raises(DocumentInvalid, match=r"a\.json: .*twice"):
        codec.parse('{"a": {"b": 1, "b": 2}}', name="a.json")


def test_what_is_no_utf8_is_refused() -> None:
    with pytest.raises(DocumentInvalid, match=r"^a\.json: not valid JSON"):
        codec.parse(b'{"a": "\xff"}', name="a.json")


@pytest.mark.parametrize("depth", [70, 100_000])
def test_deep_nesting_is_refused_not_a_crash(depth: int) -> None:
    evidence = '{"e": ' + "[" * depth + "]" * depth + "}"
    text = '{"check": "c", "subject": "s", "status": "pass", "message": "", "evidence": %s}'
    with pytest.raises(DocumentInvalid, match=r"^a\.json.*(nested too deeply|recursion)"):
        codec.loads(Finding, text % evidence, name="a.json")


def test_enums_are_written_as_words_and_none_as_null() -> None:
    report = Report(
        target=Target(name="ada", sm="sm_89"),
        driver=None,
        verdict=Verdict.COMPATIBLE,
        assurance=Assurance.SCANNED,
        findings=(),
        summary={"n": (1, 2)},
    )
    data = json.loads(codec.dumps(report))
    assert (data["verdict"], data["assurance"], data["driver"]) == ("compatible", "scanned", None)
    assert data["summary"] == {"n": [1, 2]}
    assert codec.dumps(report).endswith("}\n")


def test_what_has_a_default_may_be_missing_as_in_a_document_from_before_it() -> None:
    said = codec.to_json(Linked())
    for name in tuple(said):
        del said[name]
    assert codec.from_json(Linked, said, "x") == Linked()
