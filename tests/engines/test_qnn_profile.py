from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from npumark.engines.qnn_profile import QnnProfile, read_qnn_profile
from npumark.errors import EngineError

HEAD = "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier\n"
FINALIZE = "0,FINALIZE,21351,US,BACKEND,ROOT,QNN (finalize) time\n"
EXECUTION = """\
0,BACKEND,0,COUNT,BACKEND,ROOT,Number of HVX threads used
0,BACKEND,28592,US,BACKEND,ROOT,Time for HVX + HMX power on and acquire
0,BACKEND,4151860,CYCLES,BACKEND,ROOT,Accelerator (execute) time (cycles)
0,NODE,1086,CYCLES,BACKEND,SUB-EVENT,Input OpId_2 (cycles)
0,NODE,2680575,CYCLES,BACKEND,SUB-EVENT,x.q:OpId_16 (cycles)
0,NODE,262285,CYCLES,BACKEND,SUB-EVENT,mm0:OpId_19 (cycles)
0,NODE,152866,CYCLES,BACKEND,SUB-EVENT,Output OpId_3 (cycles)
0,BACKEND,61386,US,BACKEND,ROOT,Accelerator (execute) time
0,EXECUTE,61469,US,BACKEND,ROOT,QNN (execute) time
"""
WITHOUT_ACCELERATOR = "0,EXECUTE,61469,US,BACKEND,ROOT,QNN (execute) time\n"


def read(folder: Path, text: str) -> QnnProfile:
    path = folder / "qnn.csv"
    path.write_text(text)
    return read_qnn_profile(path)


def test_executions_and_cycles_of_each_node_are_summed(tmp_path: Path) -> None:
    assert read(tmp_path, HEAD + FINALIZE + EXECUTION * 2) == QnnProfile(
        executions=2, accelerated=2, cycles=Counter({"x.q": 5361150, "mm0": 524570})
    )


def test_an_execution_without_an_accelerator_is_told_apart(tmp_path: Path) -> None:
    found = read(tmp_path, HEAD + FINALIZE + EXECUTION + WITHOUT_ACCELERATOR)
    assert (found.executions, found.accelerated) == (2, 1)
    idle = EXECUTION.replace("4151860", "0")
    assert read(tmp_path, HEAD + idle).accelerated == 0


def test_a_profile_of_nothing_executed_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path, HEAD + FINALIZE) == QnnProfile(0, 0, Counter())


@pytest.mark.parametrize(
    "text", ["Message,Time\nEXECUTE,5\n", HEAD + "0,EXECUTE,soon,US,BACKEND,ROOT,x\n"]
)
def test_what_is_no_such_profile_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(EngineError, match="QNN's profile cannot be read"):
        read(tmp_path, text)


def test_no_profile_is_said(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="QNN wrote no profile"):
        read_qnn_profile(tmp_path / "qnn.csv")
