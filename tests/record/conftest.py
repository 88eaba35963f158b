from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from npumark.record.files import read_record
from npumark.record.model import Record

RECORDS = Path(__file__).resolve().parent.parent / "records"


@pytest.fixture(scope="session")
def corpus() -> ModuleType:
    """The script that makes the corpus of bad records, as a module."""
    spec = importlib.util.spec_from_file_location("make_bad", RECORDS / "make_bad.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_bad"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def document(corpus: ModuleType) -> dict[str, Any]:
    return corpus.good_document()


@pytest.fixture
def record(document: dict[str, Any]) -> Record:
    import json

    return read_record(json.dumps(document).encode())
